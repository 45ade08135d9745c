"""What runs on a system: engines, their trainers, and libraries of kernels."""
