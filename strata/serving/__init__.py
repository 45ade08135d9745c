"""Requests under load: steps that read and generate, queues, limits on latency, pools, speculation, and the
frontier.
"""
