"""The vectorised evaluator: one array operation per node, never one per sample."""
