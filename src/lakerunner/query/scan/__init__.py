"""Reads samples and rows from cached Parquet segments."""
