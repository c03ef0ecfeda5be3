"""Object storage: one store for folders, S3, GCS and Azure, and the only maker of paths."""
