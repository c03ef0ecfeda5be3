-- The query log: per org and day, each metric query once, with how often it was asked and what it cost.
SET LOCAL statement_timeout = 0;

CREATE TABLE query_log (
    org_id     uuid NOT NULL,
    day        date NOT NULL,
    -- A hash of language, text, range and step.
    query_id   uuid NOT NULL,
    language   text NOT NULL,
    query      text NOT NULL,
    range_ms   bigint NOT NULL,
    step_ms    bigint NOT NULL,
    asked      bigint NOT NULL,
    -- Answers from a cache, and answers of which materialization rules computed a part.
    cached     bigint NOT NULL,
    rewritten  bigint NOT NULL,
    -- Sums over all times it was asked.
    rows_read  bigint NOT NULL,
    bytes_read bigint NOT NULL,
    cpu_s      double precision NOT NULL,
    elapsed_s  double precision NOT NULL,
    -- The name of the API key that asked last, never its secret.
    asked_by   text NOT NULL,
    asked_at   timestamptz NOT NULL,
    PRIMARY KEY (org_id, day, query_id)
);
CREATE INDEX query_log_day ON query_log (day);
