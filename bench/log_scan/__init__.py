"""Scan log records in bulk: counts, groups, texts and patterns, beside DuckDB, ClickHouse and the cost of decoding."""
