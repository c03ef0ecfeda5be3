"""The query API: HTTP routes, authentication, admission and rendering."""
