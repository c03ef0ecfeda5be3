"""Reads the bytes of Parquet files: footers, page indexes, pages and bloom filters. Knows no conditions."""
