"""Recorded answers of a real Tempo, asked of a real lake."""
