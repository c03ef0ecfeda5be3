"""lrdb, the index in PostgreSQL: what arrived, what is being done, what is live."""
