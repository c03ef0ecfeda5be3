"""Random queries, answered by a real peer and by us over the same data; every difference is printed."""
