-- What an org may ask of the query API, where it differs from the settings. Names and values are checked by whoever
-- writes them; a name that a release does not know is passed over.
CREATE TABLE org_limit (
    org_id  uuid NOT NULL REFERENCES org (org_id) ON DELETE CASCADE,
    name    text NOT NULL,
    value   double precision NOT NULL,
    set_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, name)
);
