"""Operating a deployment: the supervisor behind `serve`, the doctor, the monitor, and the list of roles."""
