-- Metrics that are derived while rows are ingested.

-- Each task has a number of its own, from which the times of its derived samples follow.
CREATE SEQUENCE derived_slot_number;

-- Which slot of an interval of time has samples. Two samples of one series at the same time would count as one.
CREATE TABLE derived_slot (
    org_id uuid NOT NULL,
    interval_start bigint NOT NULL,
    slot integer NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, interval_start, slot)
);
CREATE INDEX derived_slot_made_at ON derived_slot (made_at);

-- Spans that wait for the other side of a call, which came or will come with another work item.
CREATE TABLE service_graph_half (
    org_id uuid NOT NULL,
    pair text NOT NULL,
    own text NOT NULL,
    is_client boolean NOT NULL,
    service text NOT NULL,
    start_ns bigint NOT NULL,
    duration_ns bigint NOT NULL,
    failed boolean NOT NULL,
    messaging boolean NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, pair, is_client, own)
);
CREATE INDEX service_graph_half_seen_at ON service_graph_half (seen_at);
