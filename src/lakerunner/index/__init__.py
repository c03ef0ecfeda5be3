"""lrdb, the index in PostgreSQL: raw objects, work items, live segments, the outbox, leases, orgs and keys."""
