"""A deletion whose worker is killed at any point: its rows are never visible, and the next worker finishes it."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.model.deletion import DeletionState
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.crash import VARIABLE
from tests.pipeline.delete import deleting
from tests.query.lake_of_logs import HOUR_NS, HOURS, write_logs
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

POINTS = [
    "delete_before_begin",
    "delete_after_begin",
    "delete_after_read",
    "delete_after_write",
    "before_commit",
    "after_commit",
]
#: Those that `make test` kills at; all of them with LAKERUNNER_ALL_POINTS=1.
SLICE = ["delete_after_begin", "delete_after_write", "after_commit"]


@pytest.fixture
def lake(tmp_path: Path, database_url: str) -> Iterator[LakeOfSeries]:
    with lake_of_series(tmp_path, database_url) as made:
        yield made


def messages(lake: LakeOfSeries, org_id: uuid.UUID) -> list[str]:
    plan = language("rows").compile("", QueryTimes(0, HOURS * 3_600_000, 0), QueryOptions(signal="logs"))
    batches = lake.lake.query(org_id).rows(plan)  # type: ignore[arg-type]
    return sorted(text for batch in batches for text in batch.column("message").to_pylist())


@pytest.mark.parametrize("point", POINTS if os.environ.get("LAKERUNNER_ALL_POINTS") else SLICE)
def test_rows_stay_hidden_until_they_are_gone(
    lake: LakeOfSeries, database_url: str, tmp_path: Path, point: str
) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    before = messages(lake, org_id)
    wait_s = 1e-6 if "begin" in point else 0.0
    deletion_id = deleting.request(lake.database, org_id, "logs", '{service_name="s1"}', 0, 2 * HOUR_NS, wait_s)
    expected = [text for text in before if not (text[5] in "01" and int(text.split()[-1]) % 4 == 1)]
    assert messages(lake, org_id) == expected
    killed = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.delete.crashing", database_url, str(tmp_path)],
        env={**os.environ, VARIABLE: point},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2_000:]
    assert messages(lake, org_id) == expected
    deleting.work_off(lake.settings, lake.database)
    assert messages(lake, org_id) == expected
    done = deleting.found(lake.database, org_id, deletion_id)
    assert (done.state, done.rows_deleted) == (DeletionState.DONE, len(before) - len(expected))
