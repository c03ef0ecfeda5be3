"""Keeping a house in order: the supervisor of `serve`, the doctor, the list of roles."""
