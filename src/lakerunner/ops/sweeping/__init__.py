"""Sweeping: what ends segments, deletes objects, compares bucket and index, drops partitions; one file each."""
