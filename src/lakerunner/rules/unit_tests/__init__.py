"""Unit tests of rule files: Prometheus' own format, and pairs of rows and expected series."""
