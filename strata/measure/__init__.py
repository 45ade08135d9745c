"""What a user measures: kernels and collectives on GPUs, logs of nccl-tests, schedules in ns-3."""
