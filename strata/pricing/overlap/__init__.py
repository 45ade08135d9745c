"""What hides behind what."""
