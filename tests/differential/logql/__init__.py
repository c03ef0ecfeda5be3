"""Random LogQL, asked of a real Loki and of our API over the same records."""
