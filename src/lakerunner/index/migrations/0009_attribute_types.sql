-- The type of each attribute column, the same in all segments of an org and signal. The first one stays.
CREATE TABLE attribute_type (
    org_id      uuid NOT NULL,
    signal      text NOT NULL,
    name        text NOT NULL,
    type        text NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, signal, name)
);
