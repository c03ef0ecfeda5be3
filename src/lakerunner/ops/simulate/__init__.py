"""Simulated days of many orgs, sent through the real stages as fast as the machine allows."""
