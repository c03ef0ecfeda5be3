"""CPU of ingest with 0, 10, 50 and 200 materialization rules, and of backfill."""
