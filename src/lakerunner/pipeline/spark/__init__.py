"""Spark as the pipeline uses it: one session per process, and batches of tasks that run as one job."""
