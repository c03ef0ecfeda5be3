"""Runs PromQL test scripts (load, eval, expect) over any source of series."""
