"""The simulated telemetry of a small shop: correlated logs, metrics and traces for demos, tests and benchmarks."""
