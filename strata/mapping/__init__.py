"""How it is divided: plans, sharded graphs, placements on a fabric."""
