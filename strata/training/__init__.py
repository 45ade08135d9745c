"""Training as a program of its own: runs, and post-training by reinforcement learning."""
