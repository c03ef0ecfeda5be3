"""Distributes scans and evaluations to workers: other processes over Arrow Flight, or this process."""
