-- Which work item of a stage took which segment. A stage takes a segment once, whatever is announced how often; two
-- stages may take the same. Rows of an item that ended stale are deleted, which sets its segments free.
CREATE TABLE segment_input (
    stage       text NOT NULL,
    dateint     integer NOT NULL,
    segment_id  uuid NOT NULL,
    item_id     uuid NOT NULL,
    PRIMARY KEY (stage, dateint, segment_id)
);
CREATE INDEX segment_input_item ON segment_input (item_id);
