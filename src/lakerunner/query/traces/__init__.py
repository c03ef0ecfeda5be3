"""Traces: all spans of one, found by its id, and their assembly to a tree."""
