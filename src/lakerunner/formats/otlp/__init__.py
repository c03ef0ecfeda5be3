"""Decode OTLP, as protobuf or JSON, into tables of logs, metrics and traces."""
