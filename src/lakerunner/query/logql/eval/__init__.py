"""Evaluates the metric queries of LogQL."""
