-- How many series each version of a rule has made of a day: a sketch of their ids, merged by every commit that adds some.
CREATE TABLE rule_series (
    rule_id  bigint NOT NULL,
    day      integer NOT NULL,
    org_id   uuid NOT NULL,
    signal   text NOT NULL,
    -- Buckets of a HyperLogLog (`model/distinct.py`), ascending, four bytes each.
    sketch   bytea NOT NULL DEFAULT '',
    series   bigint NOT NULL DEFAULT 0,
    -- The limit of the rule is reached: further rows of the day go to its overflow series.
    is_full  boolean NOT NULL DEFAULT false,
    noted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (rule_id, day)
);
CREATE INDEX rule_series_full ON rule_series (org_id, signal) WHERE is_full;
CREATE INDEX rule_series_noted_at ON rule_series (noted_at);
