"""Requests in a server, one by one: continuous batching on the step prices of `evaluate`."""
