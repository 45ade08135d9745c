"""What to build: a chip's budgets, its strategy and its model's shape, chosen together for the time of a step."""
