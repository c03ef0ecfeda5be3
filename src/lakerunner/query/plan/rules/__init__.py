"""Ways to pass segments by, one a file. `prune.RULES` says in which order."""
