-- Looking windows up: those that are due, the watermark of a tier, those of a work item.
-- No column that every ingest changes is in an index, so that those updates stay within their page.
CREATE INDEX rollup_window_due ON rollup_window (end_ns) WHERE dirty AND item_id IS NULL AND NOT sealed;
CREATE INDEX rollup_window_dirty ON rollup_window (org_id, tier_s, start_ns) WHERE dirty;
CREATE INDEX rollup_window_item ON rollup_window (item_id) WHERE item_id IS NOT NULL;
