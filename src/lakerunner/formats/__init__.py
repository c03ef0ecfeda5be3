"""Bytes of raw objects, in any of the formats we read, to Arrow tables of our model."""
