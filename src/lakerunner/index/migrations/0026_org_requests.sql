-- Requests to buckets since the beginning, by org and kind, as a provider bills them. Nobody's have the nil org.
CREATE TABLE org_request (
    org_id      uuid NOT NULL,
    operation   text NOT NULL,
    requests    bigint NOT NULL,
    bytes       bigint NOT NULL,
    PRIMARY KEY (org_id, operation)
);
