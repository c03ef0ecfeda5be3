"""Shared by the parsers of all query languages: tokens with positions, string literals, limits, parse errors."""
