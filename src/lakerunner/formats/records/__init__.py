"""Flat records of any origin (JSON lines, CSV, Parquet) to the tables of their signal."""
