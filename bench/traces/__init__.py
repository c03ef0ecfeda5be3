"""Traces: by id, TraceQL and tag values over 10 million spans beside chDB and DuckDB, and what derivation costs.

Spans are made from a seed and written as segments by the writer of ingest: 200 segments, traces of ten spans of which
each lies in two segments. An answer is compared before it is timed. `--quick` takes a fiftieth of the spans.
"""
