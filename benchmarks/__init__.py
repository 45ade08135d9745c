"""Speed, as ratios against a named baseline measured in the same run: these numbers move with the machine,
ratios less.
"""
