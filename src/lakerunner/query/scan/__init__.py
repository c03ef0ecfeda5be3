"""From cached Parquet to samples of series."""
