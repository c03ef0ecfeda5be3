"""The HTTP API of Loki, compatible with its clients."""
