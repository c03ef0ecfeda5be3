"""The HTTP API of Prometheus, compatible with its clients."""
