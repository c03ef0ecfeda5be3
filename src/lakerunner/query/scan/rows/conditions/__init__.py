"""Conditions on rows: how they are written down, decided by bounds, and evaluated over whole columns."""
