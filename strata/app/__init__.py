"""What people touch: the command line, tables, pictures and reports."""
