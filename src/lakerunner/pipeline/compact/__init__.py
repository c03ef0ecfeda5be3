"""The compact stage: many small segments become few large ones."""
