"""Runs a suite of recorded LogQL answers against a real lake, over HTTP."""
