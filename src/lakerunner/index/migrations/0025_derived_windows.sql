-- Stretches of time whose derived metrics count rows that were deleted on request, until they are made again.

-- hidden: the whole time of an open deletion. waiting: rows of it are gone, others not yet. due: to be made again.
-- made: the samples were replaced. kept: they cannot be made again, `reason` says why. All but `made` are no part of the
-- coverage of rules.
CREATE TABLE derived_window (
    deletion_id uuid NOT NULL REFERENCES deletion (deletion_id) ON DELETE CASCADE,
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    start_ns    bigint NOT NULL,
    end_ns      bigint NOT NULL CHECK (end_ns > start_ns),
    state       text NOT NULL CHECK (state IN ('hidden', 'waiting', 'due', 'made', 'kept')),
    -- Not before this time, which is set again whenever somebody tries.
    ready_at    timestamptz NOT NULL DEFAULT now(),
    reason      text,
    -- The deletion of the samples that were there before, and how many rows took their place.
    replaced_by uuid,
    samples     bigint,
    -- Metric -> why its samples were left as they were.
    left_out    jsonb NOT NULL DEFAULT '{}',
    ended_at    timestamptz,
    PRIMARY KEY (deletion_id, start_ns, end_ns)
);
CREATE INDEX derived_window_uncovered ON derived_window (org_id, signal) WHERE state <> 'made';
CREATE INDEX derived_window_due ON derived_window (ready_at) WHERE state = 'due';
