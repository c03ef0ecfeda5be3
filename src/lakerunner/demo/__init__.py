"""A small shop that tells of itself: correlated logs, metrics and traces for demos, tests and benchmarks."""
