"""Two lanes: short queries in the API's own process, long ones and those of busy orgs in one that gives way."""
