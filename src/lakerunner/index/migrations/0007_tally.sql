-- Counts of raw objects, work items and segments, maintained by the transactions that change them.
--
-- Triggers append what a statement changed to tally_delta, so transactions do not wait for each other as they would
-- at a row of totals. Upkeep adds the deltas to tally and deletes them. The count of a state is the sum over both.
SET LOCAL statement_timeout = 0;

CREATE TABLE tally (
    subject     text NOT NULL,
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    state       text NOT NULL,
    count       bigint NOT NULL,
    row_count   bigint NOT NULL,
    size_bytes  bigint NOT NULL,
    -- Of raw objects that are done: the latest arrival. It does not go back when rows are deleted.
    newest_at   timestamptz,
    PRIMARY KEY (org_id, signal, subject, state)
);
CREATE TABLE tally_delta (LIKE tally INCLUDING DEFAULTS);
CREATE INDEX tally_delta_org ON tally_delta (org_id, signal);

-- One function per table and kind of statement, because only a static statement keeps its plan: planning it each time
-- would cost more than running it. Each appends the rows after the statement minus those before it.
DO $$
DECLARE
    subject record;
    event record;
BEGIN
    FOR subject IN SELECT * FROM (VALUES
        ('raw_object', 'count(*) AS n, 0 AS r, 0 AS b, max(arrived_at) FILTER (WHERE state = ''done'') AS newest'),
        ('work_item', 'count(*) AS n, 0 AS r, 0 AS b, NULL::timestamptz AS newest'),
        ('segment', 'count(*) AS n, sum(row_count) AS r, sum(size_bytes) AS b, NULL::timestamptz AS newest')
    ) AS subjects (name, counts) LOOP
        FOR event IN SELECT * FROM (VALUES
            ('INSERT', 'NEW TABLE AS after_rows', ARRAY['SELECT *, 1 AS sign FROM after_rows']),
            ('DELETE', 'OLD TABLE AS before_rows', ARRAY['SELECT *, -1 AS sign FROM before_rows']),
            ('UPDATE', 'OLD TABLE AS before_rows NEW TABLE AS after_rows',
                ARRAY['SELECT *, 1 AS sign FROM after_rows', 'SELECT *, -1 AS sign FROM before_rows'])
        ) AS events (name, transition, sides) LOOP
            EXECUTE format(
                'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN'
                ' INSERT INTO tally_delta (subject, org_id, signal, state, count, row_count, size_bytes, newest_at)'
                ' SELECT %L, org_id, signal, state, sum(sign * n), sum(sign * r), sum(sign * b),'
                ' max(newest) FILTER (WHERE sign = 1) FROM'
                ' (SELECT org_id, signal, state, sign, %s FROM (%s) AS side GROUP BY org_id, signal, state, sign)'
                ' AS change GROUP BY org_id, signal, state'
                ' HAVING sum(sign * n) <> 0 OR sum(sign * r) <> 0 OR sum(sign * b) <> 0;'
                ' RETURN NULL; END $body$',
                lower('tally_' || subject.name || '_' || event.name), subject.name, subject.counts,
                array_to_string(event.sides, ' UNION ALL '));
            EXECUTE format(
                'CREATE TRIGGER tally_%s AFTER %s ON %I REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION %I()',
                lower(event.name), event.name, subject.name, event.transition,
                lower('tally_' || subject.name || '_' || event.name));
        END LOOP;
        -- The triggers hold off writers until this migration commits, so the first totals miss nothing.
        EXECUTE format(
            'INSERT INTO tally (subject, org_id, signal, state, count, row_count, size_bytes, newest_at)'
            ' SELECT %L, org_id, signal, state, %s FROM %I GROUP BY org_id, signal, state',
            subject.name, subject.counts, subject.name);
    END LOOP;
END $$;
