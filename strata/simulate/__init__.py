"""Event-driven simulation: tasks on resources, one after the other, where closed forms do not reach."""
