-- A filter of the ids in a segment (of traces: the trace ids), so that a lookup by id opens only segments that may hold
-- it, whatever their time. Lookups of segments do not read it. Null: the segment may hold every id.
ALTER TABLE segment ADD COLUMN id_filter bytea;
ALTER TABLE segment ALTER COLUMN id_filter SET STORAGE EXTERNAL;
