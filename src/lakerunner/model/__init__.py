"""The domain model: signals, segments, times, labels, errors. Pure: no I/O, no Spark, no HTTP."""
