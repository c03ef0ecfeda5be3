-- Windows of rollups: per org and tier, which stretches of time have tier segments that hold all raw rows.
CREATE TABLE rollup_window (
    org_id           uuid        NOT NULL,
    tier_s           int         NOT NULL CHECK (tier_s > 0),
    -- Open at the start, closed at the end, as buckets are.
    start_ns         bigint      NOT NULL,
    end_ns           bigint      NOT NULL CHECK (end_ns > start_ns),
    -- Raised with every change of the window's raw rows, in the transaction of that change.
    generation       bigint      NOT NULL DEFAULT 1,
    -- The generation that the tier's live segments hold; 0: never made.
    made_generation  bigint      NOT NULL DEFAULT 0,
    -- Whether raw rows changed since then. A query may read the tier only where it is false.
    dirty            boolean     NOT NULL DEFAULT true,
    dirty_at         timestamptz NOT NULL DEFAULT now(),
    made_at          timestamptz,
    -- The raw rows are gone by retention: what was made is kept, and never made again.
    sealed           boolean     NOT NULL DEFAULT false,
    -- The open work item that has the window.
    item_id          uuid,
    bound_at         timestamptz,
    PRIMARY KEY (org_id, tier_s, start_ns),
    CHECK (dirty OR made_generation = generation)
) WITH (fillfactor = 70);
