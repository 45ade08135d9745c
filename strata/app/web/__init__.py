"""The page: a local web app on the same functions as the command line, and what keeps it safe."""
