"""Benchmarks: each a module that prints JSON lines."""
