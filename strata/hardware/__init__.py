"""What is built: technology, chips, stacks, fabrics and systems."""
