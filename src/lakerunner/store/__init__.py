"""Object storage: one store for folders, S3, GCS and Azure. Only keys.py builds paths."""
