"""What benchmarks of a served lake share: servers, measuring, the report, and an index to serve from."""
