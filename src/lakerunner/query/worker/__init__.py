"""Who scans: this process, or workers reached by Arrow Flight."""
