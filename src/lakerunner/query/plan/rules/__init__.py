"""The pruning rules, one per file. `prune.RULES` defines their order."""
