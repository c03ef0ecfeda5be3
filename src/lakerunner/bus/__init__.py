"""Names of things to do, on their way between stages: never telemetry."""
