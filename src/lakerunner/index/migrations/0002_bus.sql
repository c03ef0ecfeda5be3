-- The bus in PostgreSQL: partitions of topics, their messages, and how far each group has come.

-- A publisher takes offsets by updating this row, and holds it until it commits: a reader never sees a gap fill later.
CREATE TABLE bus_partition (
    topic       text NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, partition)
);

CREATE TABLE bus_message (
    topic       text NOT NULL,
    partition   integer NOT NULL,
    at_offset   bigint NOT NULL,
    key         text NOT NULL,
    payload     bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, at_offset)
);

-- Everything below `committed` is done. Messages below `handed` were given to a worker: when nobody holds the
-- partition and `handed` is above `committed`, that worker died over them. `attempts` were made at the first of them;
-- `alone` tells that it was the only one, and so the culprit. The fence grows with every change of owner.
CREATE TABLE bus_cursor (
    group_name  text NOT NULL,
    topic       text NOT NULL,
    partition   integer NOT NULL,
    committed   bigint NOT NULL DEFAULT 0,
    handed      bigint NOT NULL DEFAULT 0,
    attempts    integer NOT NULL DEFAULT 0,
    alone       boolean NOT NULL DEFAULT false,
    fence       bigint NOT NULL DEFAULT 0,
    member      text NOT NULL DEFAULT '',
    PRIMARY KEY (group_name, topic, partition),
    FOREIGN KEY (topic, partition) REFERENCES bus_partition,
    CHECK (committed <= handed)
);
