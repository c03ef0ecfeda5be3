"""How a process lives: settings, lifecycle, health, telemetry, retry, crash points."""
