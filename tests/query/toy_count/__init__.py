"""A language of one query, `count{…}`, written by following "Adding a language" in docs/architecture.md."""
