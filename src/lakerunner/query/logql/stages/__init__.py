"""The stages of a LogQL pipeline, one file each. A stage turns entries into entries, whole columns at a time."""
