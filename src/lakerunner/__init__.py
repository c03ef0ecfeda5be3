"""Lakerunner: a telemetry lake. Walk the folders from `model` to `cli`; each imports only from those above it."""

__version__ = "0.1.0"
