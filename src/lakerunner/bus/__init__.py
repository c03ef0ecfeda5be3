"""The message bus between stages. Messages name work to do; they never carry telemetry."""
