"""What the rollup counts beyond what every stage does."""

from __future__ import annotations

from prometheus_client import Counter

ROLLUP_SAMPLES = Counter("lakerunner_rollup_samples_total", "Samples that were read for rollups.")
ROLLUP_WINDOWS = Counter("lakerunner_rollup_windows_total", "Windows that were made, by tier.", ["tier_s"])
JOINED_WINDOWS = Counter("lakerunner_rollup_joined_windows", "Windows of closed days that were joined to wide ones.")
