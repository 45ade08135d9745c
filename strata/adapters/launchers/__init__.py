"""Engines as the commands that start them: flags of a version, and which plans it runs as priced."""
