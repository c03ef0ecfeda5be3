-- What the monitor shows: live segments by level and tier, minutes of objectives, and the rounds of the canary.
SET LOCAL statement_timeout = 0;

-- Counts of live segments by level and tier: rows of `tally` with the subject `segment_level` and the state
-- `{level}/{tier_s}`. The triggers append differences, as those of migration 7 do.
DO $$
DECLARE
    event record;
BEGIN
    FOR event IN SELECT * FROM (VALUES
        ('insert', 'NEW TABLE AS after_rows', ARRAY['SELECT *, 1 AS sign FROM after_rows']),
        ('delete', 'OLD TABLE AS before_rows', ARRAY['SELECT *, -1 AS sign FROM before_rows']),
        ('update', 'OLD TABLE AS before_rows NEW TABLE AS after_rows',
            ARRAY['SELECT *, 1 AS sign FROM after_rows', 'SELECT *, -1 AS sign FROM before_rows'])
    ) AS events (name, transition, sides) LOOP
        EXECUTE format(
            'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN'
            ' INSERT INTO tally_delta (subject, org_id, signal, state, count, row_count, size_bytes)'
            ' SELECT ''segment_level'', org_id, signal, level || ''/'' || tier_s, sum(sign), sum(sign * row_count),'
            ' sum(sign * size_bytes) FROM (%s) AS side WHERE state = ''live'' GROUP BY org_id, signal, level, tier_s'
            ' HAVING sum(sign) <> 0 OR sum(sign * row_count) <> 0 OR sum(sign * size_bytes) <> 0;'
            ' RETURN NULL; END $body$',
            'tally_segment_level_' || event.name, array_to_string(event.sides, ' UNION ALL '));
        EXECUTE format(
            'CREATE TRIGGER tally_level_%s AFTER %s ON segment REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION %I()',
            event.name, event.name, event.transition, 'tally_segment_level_' || event.name);
    END LOOP;
END $$;
INSERT INTO tally (subject, org_id, signal, state, count, row_count, size_bytes)
    SELECT 'segment_level', org_id, signal, level || '/' || tier_s, count(*), sum(row_count), sum(size_bytes)
    FROM segment WHERE state = 'live' GROUP BY org_id, signal, level, tier_s;

-- How many events of a minute met an objective. Burn rates are sums over these rows, however many events there were.
CREATE TABLE objective_minute (
    objective   text NOT NULL,
    -- Whoever measured it: one row per process and minute, so that no two add to the same row.
    source      text NOT NULL,
    minute      timestamptz NOT NULL,
    good        bigint NOT NULL CHECK (good >= 0),
    total       bigint NOT NULL CHECK (total >= good),
    PRIMARY KEY (objective, minute, source)
);
CREATE INDEX objective_minute_age ON objective_minute (minute);

-- Rounds of the canary that were written and may still be looked at. A restarted canary continues with them.
CREATE TABLE canary_round (
    round_id    bigint NOT NULL,
    signal      text NOT NULL,
    key         text NOT NULL,
    rows        integer NOT NULL CHECK (rows > 0),
    event_ns    bigint NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT now(),
    -- When all rows could first be queried; null while they cannot.
    visible_at  timestamptz,
    -- The outcome of the last look: how many rows were found, and how many of them distinct.
    found       integer NOT NULL DEFAULT 0,
    distinct_found integer NOT NULL DEFAULT 0,
    PRIMARY KEY (round_id, signal)
);
CREATE INDEX canary_round_waiting ON canary_round (written_at) WHERE visible_at IS NULL;
