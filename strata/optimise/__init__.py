"""Exact mappings of any graph: layouts between chips, fusion inside them, and bounds that prove them."""
