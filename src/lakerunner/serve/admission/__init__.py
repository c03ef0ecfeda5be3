"""Who may run now: turns between orgs, and the list of running queries."""
