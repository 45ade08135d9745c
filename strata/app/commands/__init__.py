"""Commands: each asks the library and prints what it answers. One file a command, or a small family."""
