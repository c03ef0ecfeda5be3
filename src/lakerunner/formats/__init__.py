"""Decode raw objects, in every format we read, into Arrow tables of the model."""
