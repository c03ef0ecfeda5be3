-- What compaction and the deletion of raw objects need to know.

-- The raw objects that a segment's rows come from; null if they are not known, or too many to keep. Two live segments
-- with a common one hold its rows twice.
CREATE TABLE segment_source (
    dateint     integer NOT NULL,
    segment_id  uuid NOT NULL,
    object_ids  uuid[] NOT NULL,
    PRIMARY KEY (dateint, segment_id)
);

-- How long after its ingest a raw object of the profile is deleted; null keeps it. And up to which end the objects were
-- looked at.
ALTER TABLE storage_profile ADD COLUMN delete_raw_after_s double precision CHECK (delete_raw_after_s >= 600);
ALTER TABLE storage_profile ADD COLUMN raw_deleted_until timestamptz NOT NULL DEFAULT '-infinity';
