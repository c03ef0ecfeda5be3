"""A small simulation through all real stages: every row that was sent is there once."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from lakerunner.ops.simulate.deployment import simulated_settings
from lakerunner.runtime.settings.load import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_day_of_two_orgs_is_stored_exactly(tmp_path: Path) -> None:
    options = [
        "--days",
        "1",
        "--orgs",
        "2",
        "--objects-per-day",
        "3",
        "--rows-per-object",
        "4",
        "--objects-per-item",
        "3",
        "--quiet",
        "1",
        "--seed",
        "7",
    ]
    command = [sys.executable, "-m", "lakerunner", "simulate", *options, "--keep", str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    facts = orjson.loads(done.stdout)
    assert facts["exact"] and facts["objects"]["done"] == facts["workload"]["objects"] == 18
    for count in facts["rows"].values():
        assert count == {"sent": 24, "live": 24, "distinct": 24, "lost": 0, "doubled": 0, "foreign": 0}
    assert facts["write_amplification"] >= 1.0
    assert {each["signal"] for each in facts["segments_per_org_day"]} == {"logs", "metrics", "traces"}
    assert (tmp_path / "lake" / "bucket" / "db").is_dir()


def test_a_simulation_never_touches_the_lake_of_the_settings(tmp_path: Path) -> None:
    given = load_settings(
        overrides={"index.url": "postgresql://production/lrdb", "store.url": "s3://production", "pipeline.jobs": "5"}
    )
    settings = simulated_settings(given, tmp_path, 4)
    assert settings.index.url == "embedded" and settings.store_url.startswith(tmp_path.as_uri())
    assert settings.pipeline.jobs == 5 and settings.pipeline.bundle_objects == 4
