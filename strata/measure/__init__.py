"""What a user measures: kernels and collectives on GPUs, logs of nccl-tests and what they say of a network,
schedules in a packet simulator.
"""
