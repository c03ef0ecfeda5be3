-- The hours of a day that is over for long are joined: one wide window, and so few segments, per tier and day.
-- Settled: as wide as it will ever be.
ALTER TABLE rollup_window ADD COLUMN settled boolean NOT NULL DEFAULT false;
-- The windows that are still to be joined: those of fine tiers, of a day or two, whatever the age of the lake.
CREATE INDEX rollup_window_unsettled ON rollup_window (end_ns) WHERE NOT settled AND tier_s <= 300;
