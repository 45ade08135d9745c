"""What it costs: time, bytes and joules of each op, and their sums."""
