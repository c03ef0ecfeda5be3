-- When raw objects arrived in their bucket, and what the ledger has forgotten; indexes that stay small as the ledger grows.
SET LOCAL statement_timeout = 0;

-- The bucket's last-modified time. Rows from before this migration get the time of the migration, except those that
-- still wait: these hold the watermark back.
ALTER TABLE raw_object ADD COLUMN arrived_at timestamptz NOT NULL DEFAULT now();
UPDATE raw_object SET arrived_at = seen_at WHERE state IN ('seen', 'bundled');

-- Raw objects of the org that arrived up to this time may have been deleted from the ledger. One that it does not know
-- is therefore not taken in: it may have been ingested before.
CREATE TABLE ledger_horizon (
    org_id          uuid PRIMARY KEY,
    forgotten_until timestamptz NOT NULL
);

-- The oldest waiting object of an org and signal is one lookup.
DROP INDEX raw_object_waiting;
CREATE INDEX raw_object_waiting ON raw_object (org_id, signal, arrived_at) WHERE state IN ('seen', 'bundled');
-- Reconciliation reads ranges of age, in this order.
CREATE INDEX raw_object_seen ON raw_object (seen_at, object_id) WHERE state = 'seen';
DROP INDEX work_item_open;
CREATE INDEX work_item_open ON work_item (stage, created_at, item_id) WHERE state = 'open';
CREATE INDEX segment_made ON segment (created_at, segment_id) WHERE state = 'live';
-- Only an open item's objects are looked up by item, and they are bundled.
DROP INDEX raw_object_item;
CREATE INDEX raw_object_item ON raw_object (item_id) WHERE state = 'bundled';
