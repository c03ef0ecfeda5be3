"""Lakerunner's own API: streamed answers, running queries and limits."""
