-- Materialization rules: a catalog per org and signal, what each segment was evaluated with, and holes in coverage.
SET LOCAL statement_timeout = 0;

-- The version grows with every change of the org's rules of the signal. Segments record it.
CREATE TABLE rule_catalog (
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    version     bigint NOT NULL CHECK (version > 0),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, signal)
);

-- One row per version of a rule. It is evaluated from one version of the catalog to before another.
CREATE TABLE materialization_rule (
    rule_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id          uuid NOT NULL,
    signal          text NOT NULL,
    name            text NOT NULL,
    version         integer NOT NULL CHECK (version > 0),
    group_name      text NOT NULL,
    definition      jsonb NOT NULL,
    since_version   bigint NOT NULL,
    until_version   bigint CHECK (until_version > since_version),
    created_at      timestamptz NOT NULL DEFAULT now(),
    created_by      text NOT NULL,
    retired_at      timestamptz,
    retired_reason  text,
    UNIQUE (org_id, name, version)
);
CREATE UNIQUE INDEX materialization_rule_live ON materialization_rule (org_id, name) WHERE until_version IS NULL;

-- Stretches of time in which what a rule made may differ from what its raw rows say. Without a rule: all of the signal.
CREATE TABLE rule_hole (
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    rule_id     bigint NOT NULL DEFAULT 0,
    start_ns    bigint NOT NULL,
    end_ns      bigint NOT NULL CHECK (end_ns > start_ns),
    reason      text NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, signal, rule_id, reason, start_ns)
);

-- The catalog version with which the rows of a segment were evaluated; 0 is before any rule.
ALTER TABLE segment ADD COLUMN rules_version bigint NOT NULL DEFAULT 0;
