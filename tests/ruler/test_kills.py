"""A ruler that is killed between any two steps loses no alert and doubles no sample; its successor goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.runtime import crash
from tests.components.postgres import PostgresServer
from tests.ruler.lake_of_rules import LakeOfRules, lake_of_rules

_GROUP = """\
  query_offset: 0s
  rules:
  - record: job:up
    expr: sum by (job) (up)
  - alert: Down
    expr: job:up < 1
    for: 1m
  - alert: Never
    expr: absent(up)
"""
_VALUES = [1, 0, 0, 0, 0, 1, 1, 1]
_MINUTES = range(2, 9)
#: Points, and the pass through each that kills. With LAKERUNNER_TEST_ALL_POINTS=1 all of them; they take two minutes.
_POINTS = [("before_commit", 2), ("ruler_after_send", 1)]
if os.environ.get("LAKERUNNER_TEST_ALL_POINTS"):
    _POINTS += [("ruler_after_write", 3), ("after_commit", 5), ("ruler_before_commit", 1), ("ruler_after_commit", 2)]
    _POINTS += [("ruler_before_send", 1), ("ruler_after_send", 2)]


class _Log:
    """A receiver that survives its sender: every alert is a line of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, _: str, body: bytes) -> None:
        with self._path.open("a") as log:
            for alert in json.loads(body)["alerts"]:
                log.write(json.dumps([alert["status"], alert["startsAt"], alert["labels"]["alertname"]]) + "\n")


def _run(folder: Path, url: str, org_id: uuid.UUID, log: Path, base_ms: int, point: str, passing: int) -> None:
    """A ruler from its start to its end, or to its death."""
    from tests.ruler import lake_of_rules as module

    module.BASE_MS = base_ms
    crash._NAME, crash._LEFT = point, passing
    lake = LakeOfRules(folder, url, org_id)
    ruler = lake.ruler(catch_up=20)
    for receiver in ruler.notifier.receivers:
        receiver.post = _Log(log)
    for minute in _MINUTES:
        lake.look(ruler, minute)
    ruler.close()
    lake.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[LakeOfRules]:
    with lake_of_rules(tmp_path_factory.mktemp("lake"), postgres_server.new_database()) as lake:
        yield lake


def _lived(lake: LakeOfRules, log: Path, point: str = "", passing: int = 1) -> tuple[int, list[tuple[str, str]]]:
    """Rows that rules wrote, and what the receiver heard. With a point, one ruler dies there and another goes on."""
    from tests.ruler import lake_of_rules as module

    lake.clear()
    lake.add("up", _VALUES, job="a")
    lake.group(_GROUP)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.ruler.test_kills", "tests.ruler.lake_of_rules"])
    for armed in [point, ""] if point else [""]:
        given = (lake.settings.data.dir, lake.settings.index.url, lake.org_id, log, module.BASE_MS, armed, passing)
        process = context.Process(target=_run, args=given)
        process.start()
        process.join(120)
        assert process.exitcode == (-signal.SIGKILL if armed else 0), (armed, process.exitcode)
    with lake.database.transaction() as tx:
        row = tx.execute(
            "SELECT coalesce(sum(row_count), 0) AS rows FROM segment WHERE org_id = %s AND collector = 'ruler'"
            " AND state = 'live'",
            [lake.org_id],
        ).fetchone()
    assert row is not None
    heard = [tuple(json.loads(line)) for line in log.read_text().splitlines()]
    assert {name for _, _, name in heard} == {"Down"}
    return int(row["rows"]), [(status, start) for status, start, _ in heard]


def test_a_killed_ruler_loses_and_doubles_nothing(lake: LakeOfRules, tmp_path: Path) -> None:
    rows, heard = _lived(lake, tmp_path / "undisturbed")
    assert [status for status, _ in heard] == ["firing", "resolved"] and rows > 10
    for point, passing in _POINTS:
        log = tmp_path / f"{point}-{passing}"
        found, told = _lived(lake, log, point, passing)
        assert found == rows, (point, passing)
        # Sent again, with the same start, only if the ruler died after sending and before storing that.
        again = 1 if point == "ruler_after_send" else 0
        assert len(told) == 2 + again and len({start for _, start in told}) == 1, (point, passing, told)
        assert [*dict.fromkeys(status for status, _ in told)] == ["firing", "resolved"], (point, passing)
