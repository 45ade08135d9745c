"""How far predictions are from measurements: figures, intervals, pictures and the committed table."""
