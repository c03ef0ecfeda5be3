-- Groups of recording and alerting rules per org, how far each was evaluated, and what each rule remembers.
SET LOCAL statement_timeout = 0;

CREATE TABLE rule_group (
    org_id           uuid NOT NULL,
    namespace        text NOT NULL,
    name             text NOT NULL,
    -- A rule file with this one group.
    definition       text NOT NULL,
    version          bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    changed_at       timestamptz NOT NULL DEFAULT now(),
    changed_by       text NOT NULL,
    -- The time of the last evaluation whose results are stored; null before the first.
    evaluated_at_ms  bigint,
    -- An evaluation that is stored in part: its time, and how many of its batches are stored.
    partial_at_ms    bigint,
    partial_batches  integer NOT NULL DEFAULT 0,
    evaluations      bigint NOT NULL DEFAULT 0,
    missed           bigint NOT NULL DEFAULT 0,
    duration_s       double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, namespace, name)
);

CREATE TABLE rule_state (
    org_id      uuid NOT NULL,
    namespace   text NOT NULL,
    group_name  text NOT NULL,
    rule_no     integer NOT NULL,
    -- Kind, name and labels: a rule that moves within its group keeps its state.
    rule_key    text NOT NULL,
    -- Alerts, series and health (rules/evaluation/stored_state.py), and which alerts each receiver was told.
    state       json NOT NULL,
    told        json NOT NULL DEFAULT '{}',
    PRIMARY KEY (org_id, namespace, group_name, rule_no),
    FOREIGN KEY (org_id, namespace, group_name) REFERENCES rule_group ON DELETE CASCADE
);
