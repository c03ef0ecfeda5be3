"""HTTP: what clients talk to."""
