"""Who scans and evaluates: this process, or workers reached over Arrow Flight."""
