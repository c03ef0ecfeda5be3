"""The HTTP API of Tempo, compatible with its clients."""
