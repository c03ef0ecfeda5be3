"""Verbs and their rendering."""
