"""What must be computed: models, workloads, and their graphs."""
