"""What every process needs: settings, lifecycle, health, telemetry, retry, crash points."""
