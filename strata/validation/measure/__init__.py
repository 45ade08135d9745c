"""New measurements: kernels timed on a GPU, schedules run in a packet simulator."""
