"""What to build: a chip's budgets, its strategy and its model's shape, chosen together."""
