-- Rows of raw objects that were not stored as sent, by effect and reason, with a few samples. They go with their object.
CREATE TABLE row_report (
    object_id   uuid NOT NULL REFERENCES raw_object ON DELETE CASCADE,
    effect      text NOT NULL,
    reason      text NOT NULL,
    rows        bigint NOT NULL,
    samples     jsonb NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (object_id, effect, reason)
);
CREATE INDEX row_report_at ON row_report (at, object_id);
