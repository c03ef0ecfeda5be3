"""Random PromQL, asked of a real Prometheus and of our engine over the same samples."""
