"""Looking for better points: plans of a system, and what more of a resource buys."""
