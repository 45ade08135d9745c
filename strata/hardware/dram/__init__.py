"""DRAM: banks, channels and stacks."""
