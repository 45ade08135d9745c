"""Area, yield, energy and cost of dies."""
