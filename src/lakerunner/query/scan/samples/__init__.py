"""Scans samples of metric segments: chooses series, reads their runs and merges them."""
