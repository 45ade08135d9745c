"""Design variables and how they are moved: descent, line searches, grids, what every method may ask."""
