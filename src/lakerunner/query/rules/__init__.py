"""Answers parts of queries from materialization rules, where that is provably the same."""
