-- Retention per org, the end of segments, the ledger of what was swept, and deletions on request.
SET LOCAL statement_timeout = 0;

-- How long an org keeps a signal and tier, where it differs from the settings. 0 means forever.
CREATE TABLE org_retention (
    org_id  uuid NOT NULL REFERENCES org (org_id) ON DELETE CASCADE,
    signal  text NOT NULL,
    tier_s  integer NOT NULL,
    keep_s  double precision NOT NULL CHECK (keep_s >= 0),
    set_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, signal, tier_s)
);

-- A segment ends superseded (other segments have its rows), deleted (its rows expired, `end_reason` says why) or lost (an
-- object of it is missing in the bucket). `superseded_at` is when it ended, however it did.
ALTER TABLE segment DROP CONSTRAINT segment_state_check;
ALTER TABLE segment ADD CONSTRAINT segment_state_check CHECK (state IN ('live', 'superseded', 'deleted', 'lost'));
ALTER TABLE segment ADD COLUMN end_reason text;
DROP INDEX segment_superseded;
CREATE INDEX segment_ended ON segment (superseded_at, segment_id) WHERE state IN ('superseded', 'deleted');
CREATE INDEX segment_lost ON segment (org_id, signal, end_ns) WHERE state = 'lost';

-- What the sweeper deleted or repaired, and why. Pruned after a time.
CREATE TABLE sweep_ledger (
    entry_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    what        text NOT NULL,
    reason      text NOT NULL,
    org_id      uuid,
    signal      text,
    name        text NOT NULL,
    row_count   bigint NOT NULL DEFAULT 0,
    size_bytes  bigint NOT NULL DEFAULT 0
);
CREATE INDEX sweep_ledger_at ON sweep_ledger (at);

-- A request to delete rows. They are hidden from queries from its commit on; segments are rewritten without them while it
-- is running. `condition` is the selector as data, for whoever filters rows.
CREATE TABLE deletion (
    deletion_id uuid PRIMARY KEY,
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    selector    text NOT NULL,
    condition   text NOT NULL,
    start_ns    bigint NOT NULL,
    end_ns      bigint NOT NULL,
    state       text NOT NULL CHECK (state IN ('pending', 'running', 'done', 'cancelled')),
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    begins_at   timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK (start_ns < end_ns),
    CHECK ((state IN ('pending', 'running')) = (ended_at IS NULL))
);
CREATE INDEX deletion_open ON deletion (org_id, signal) WHERE state IN ('pending', 'running');
CREATE INDEX deletion_due ON deletion (begins_at) WHERE state = 'pending';
CREATE INDEX deletion_of_org ON deletion (org_id, created_at);

-- The segments that a deletion concerns, and what became of each: the receipt. Only pending rows hide anything.
CREATE TABLE deletion_segment (
    deletion_id uuid NOT NULL REFERENCES deletion (deletion_id) ON DELETE CASCADE,
    dateint     integer NOT NULL,
    segment_id  uuid NOT NULL,
    state       text NOT NULL DEFAULT 'pending'
                CHECK (state IN ('pending', 'rewritten', 'untouched', 'emptied', 'ended', 'cancelled')),
    listed_at   timestamptz NOT NULL DEFAULT now(),
    rows_before bigint NOT NULL,
    rows_after  bigint,
    made        jsonb,
    ended_at    timestamptz,
    PRIMARY KEY (deletion_id, dateint, segment_id)
);
CREATE INDEX deletion_segment_pending ON deletion_segment (dateint, segment_id) WHERE state = 'pending';
CREATE INDEX deletion_segment_listed ON deletion_segment (listed_at, segment_id) WHERE state = 'pending';
