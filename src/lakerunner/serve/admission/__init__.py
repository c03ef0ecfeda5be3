"""Admission control: limits, turns between orgs, and the list of running queries."""
