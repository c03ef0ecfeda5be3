"""The query worker: an Arrow Flight server that scans segments and evaluates fragments for the API."""
