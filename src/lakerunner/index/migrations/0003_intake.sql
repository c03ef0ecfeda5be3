-- Events that brought no object into the ledger, and why. The id is a hash of what it is about: one that comes again
-- is counted, not added.
CREATE TABLE intake_rejected (
    rejected_id uuid PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('malformed', 'foreign', 'denied', 'unmapped', 'unusable')),
    source      text NOT NULL,
    bucket      text NOT NULL DEFAULT '',
    key         text NOT NULL DEFAULT '',
    reason      text NOT NULL,
    body        text NOT NULL DEFAULT '',
    times       bigint NOT NULL DEFAULT 1,
    first_at    timestamptz NOT NULL DEFAULT now(),
    last_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX intake_rejected_kind ON intake_rejected (kind, last_at);
