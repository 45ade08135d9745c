"""From technology and budgets to a chip: how many units, banks, devices and links fit, and how fast they run."""
