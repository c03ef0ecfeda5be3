-- What a client calls the service it called. If the service sends no spans, the call is counted under this name.
ALTER TABLE service_graph_half ADD COLUMN peer text NOT NULL DEFAULT '';
CREATE INDEX service_graph_half_peer ON service_graph_half (org_id, seen_at) WHERE peer <> '';
