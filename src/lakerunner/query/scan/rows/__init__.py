"""Scans rows of logs and spans. Predicates, projection, order and limit are pushed down to the pages of segments."""
