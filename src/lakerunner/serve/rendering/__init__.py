"""Rendering that several dialects share: JSON, numbers, compression."""
