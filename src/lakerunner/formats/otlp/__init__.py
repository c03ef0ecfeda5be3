"""OTLP, as protobuf and as JSON, to tables of logs, metrics and traces."""
