"""Heat: cooling, the grid, its solution, the compact form used by searches, and reports."""
