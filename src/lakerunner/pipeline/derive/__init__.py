"""Derivation: rows of a signal in, metric rows out, in the task that ingests the rows and in the same commit."""
