"""What other tools write, read or do: files read and written, engines started, post-training."""
