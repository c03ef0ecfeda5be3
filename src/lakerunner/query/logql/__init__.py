"""LogQL: Loki's query language over log records."""
