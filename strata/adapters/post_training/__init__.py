"""Reinforcement learning after training: rollouts of an engine, updates of a trainer, on one pool or two."""
