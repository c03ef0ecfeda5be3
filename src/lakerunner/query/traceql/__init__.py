"""TraceQL, Tempo's query language for traces."""
