"""Samples of metric segments: choose series, read their runs, merge them."""
