"""Random expressions, answered by a real Prometheus and by us over the same samples; every difference is printed."""
