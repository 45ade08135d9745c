"""From technology and budgets to a chip: units, banks, devices and links that fit, and how fast they run."""
