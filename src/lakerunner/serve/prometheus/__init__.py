"""The HTTP API of Prometheus, as its clients expect it."""
