-- Orgs, keys and profiles; the ledger of raw objects; work items; segments; the outbox; leases.

CREATE TABLE org (
    org_id      uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- A key itself is never stored: only its SHA-256, which is enough for a random secret of 256 bits.
CREATE TABLE api_key (
    key_id      uuid PRIMARY KEY,
    name        text NOT NULL,
    hash        bytea NOT NULL UNIQUE,
    scopes      text[] NOT NULL CHECK (scopes <@ ARRAY['ingest', 'query', 'admin'] AND cardinality(scopes) > 0),
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz
);

CREATE TABLE api_key_org (
    key_id      uuid NOT NULL REFERENCES api_key ON DELETE CASCADE,
    org_id      uuid NOT NULL REFERENCES org ON DELETE CASCADE,
    PRIMARY KEY (key_id, org_id)
);

-- Which raw objects belong to whom. Credentials are named, never held.
CREATE TABLE storage_profile (
    profile_id      uuid PRIMARY KEY,
    org_id          uuid NOT NULL REFERENCES org ON DELETE CASCADE,
    collector       text NOT NULL,
    bucket          text NOT NULL,
    prefix          text NOT NULL,
    signal          text,
    region          text NOT NULL DEFAULT '',
    endpoint        text NOT NULL DEFAULT '',
    credentials_ref text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (bucket, prefix)
);

-- The ledger. The id is a hash of bucket, key and version, so that an event that comes again is the same row.
CREATE TABLE raw_object (
    object_id   uuid PRIMARY KEY,
    org_id      uuid NOT NULL,
    collector   text NOT NULL,
    signal      text NOT NULL,
    bucket      text NOT NULL,
    key         text NOT NULL,
    version     text NOT NULL,
    size_bytes  bigint NOT NULL,
    state       text NOT NULL DEFAULT 'seen' CHECK (state IN ('seen', 'bundled', 'done', 'quarantined')),
    item_id     uuid,
    reason      text,
    row_count   bigint NOT NULL DEFAULT 0,
    seen_at     timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz,
    CHECK ((state = 'seen') = (item_id IS NULL)),
    CHECK ((state = 'quarantined') = (reason IS NOT NULL))
);
CREATE INDEX raw_object_item ON raw_object (item_id) WHERE item_id IS NOT NULL;
CREATE INDEX raw_object_waiting ON raw_object (seen_at) WHERE state IN ('seen', 'bundled');
CREATE INDEX raw_object_done ON raw_object (ended_at) WHERE state = 'done';
CREATE INDEX raw_object_quarantined ON raw_object (ended_at) WHERE state = 'quarantined';

-- A piece of work. The id is a hash of its inputs: made twice, it is one row; committed twice, the second loses.
CREATE TABLE work_item (
    item_id     uuid PRIMARY KEY,
    stage       text NOT NULL,
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    plan        jsonb NOT NULL,
    state       text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'stale')),
    reason      text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz
);
CREATE INDEX work_item_open ON work_item (stage, created_at) WHERE state = 'open';
CREATE INDEX work_item_ended ON work_item (ended_at) WHERE state <> 'open';

-- Partitions (one a month of event time) are made when a month is first written to.
CREATE TABLE segment (
    segment_id      uuid NOT NULL,
    org_id          uuid NOT NULL,
    collector       text NOT NULL,
    signal          text NOT NULL,
    dateint         integer NOT NULL,
    start_ns        bigint NOT NULL,
    end_ns          bigint NOT NULL,
    row_count       bigint NOT NULL CHECK (row_count > 0),
    size_bytes      bigint NOT NULL,
    tier_s          integer NOT NULL,
    level           integer NOT NULL,
    format_version  integer NOT NULL,
    pruning         jsonb NOT NULL,
    state           text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'superseded', 'deleted')),
    made_by         uuid NOT NULL,
    superseded_by   uuid,
    created_at      timestamptz NOT NULL DEFAULT now(),
    superseded_at   timestamptz,
    deleted_at      timestamptz,
    PRIMARY KEY (dateint, segment_id),
    CHECK (start_ns < end_ns),
    CHECK ((state = 'live') = (superseded_at IS NULL))
) PARTITION BY RANGE (dateint);
CREATE INDEX segment_lookup ON segment (org_id, signal, tier_s, end_ns, start_ns) WHERE state = 'live';
CREATE INDEX segment_superseded ON segment (superseded_at) WHERE state = 'superseded';

-- Messages that a committed transaction wants published. The relay publishes, then marks.
CREATE TABLE outbox (
    outbox_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic        text NOT NULL,
    key          text NOT NULL,
    payload      bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz
);
CREATE INDEX outbox_pending ON outbox (outbox_id) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- Who leads a singleton role. The token grows with every change of holder and fences off the one before.
CREATE TABLE lease (
    name        text PRIMARY KEY,
    holder      text NOT NULL,
    token       bigint NOT NULL,
    expires_at  timestamptz NOT NULL
);
