"""Random TraceQL, answered by plain Python over a suite's traces and by us."""
