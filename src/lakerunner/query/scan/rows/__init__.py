"""Rows of logs and spans: predicates, projection, order and limit pushed down to pages of segments."""
