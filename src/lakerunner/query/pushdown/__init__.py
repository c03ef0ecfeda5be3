"""Evaluating parts of a query where its segments are, instead of carrying samples to the query."""
