-- The secret key of the hash that gives series their ids. If it changes, every series gets another id.
CREATE TABLE series_key (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    key       bytea NOT NULL
);
INSERT INTO series_key (key) VALUES (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
