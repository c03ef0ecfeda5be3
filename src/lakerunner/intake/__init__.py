"""Discover raw objects: each object-created event from a queue, a webhook or a folder becomes one ledger row."""
