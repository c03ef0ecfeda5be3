"""The ingest stage: raw objects become segments."""
