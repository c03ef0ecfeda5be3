-- Groups that were deleted or changed while alerts of theirs fired: receivers are still told of the end of those.
SET LOCAL statement_timeout = 0;

CREATE TABLE ended_group (
    ended_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id       uuid NOT NULL,
    namespace    text NOT NULL,
    name         text NOT NULL,
    -- The rule file and the rows of rule_state as they were, the latter as a list of objects.
    definition   text NOT NULL,
    states       json NOT NULL,
    ended_at_ms  bigint NOT NULL
);
