"""Two lanes: short queries run in the API's process; long ones and those of busy orgs in a low-priority process."""
