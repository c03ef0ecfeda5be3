"""Rulers as processes share groups by leases; if one is killed or frozen, others take over, and nothing is doubled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from lakerunner.index import leases
from lakerunner.index.orgs import create_org
from lakerunner.index.rule_groups import GroupKey, StoredGroup, list_groups, put_group
from lakerunner.model.signals import METRICS
from tests.components.postgres import PostgresServer
from tests.faults.clean_roles import until
from tests.faults.victims import ForkedVictim
from tests.pipeline.lake import ORG, Lake, settings_of

_GROUPS = 6


def _lake(folder: Path, url: str) -> Lake:
    settings = settings_of(url, folder)
    changed = {
        "bus": settings.bus.model_copy(update={"session_timeout_s": 8.0}),
        "ruler": settings.ruler.model_copy(update={"arrival_s": 0.0, "catch_up": 100, "threads": 2, "org_threads": 2}),
    }
    return Lake(settings.model_copy(update=changed))


def _groups(lake: Lake) -> list[StoredGroup]:
    with lake.database.transaction() as tx:
        return list_groups(tx, ORG)


def _held(lake: Lake) -> Counter[str]:
    """Shards by their holder."""
    with lake.database.transaction() as tx:
        found = leases.holders(tx)
    return Counter(holder for name, holder in found.items() if name.startswith("ruler/"))


def _advance(lake: Lake, evaluations: int) -> None:
    """Wait until every group was evaluated so often once more."""
    before = {group.name: group.evaluations for group in _groups(lake)}
    until(
        lambda: all(group.evaluations >= before[group.name] + evaluations for group in _groups(lake)),
        "all groups are evaluated",
    )


@pytest.mark.slow
def test_the_groups_of_a_lost_ruler_go_on(tmp_path: Path, postgres_server: PostgresServer) -> None:
    lake = _lake(tmp_path, postgres_server.new_database())
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
        for number in range(_GROUPS):
            text = f"groups: [{{name: g{number}, interval: 1s, rules: [{{record: r{number}, expr: vector(1)}}]}}]"
            put_group(tx, GroupKey(ORG, "default", f"g{number}"), text, "test")
    with ExitStack() as stack:
        first, second, _ = [stack.enter_context(ForkedVictim(lake, "ruler", "nowhere")) for _ in range(3)]
        until(lambda: sorted(_held(lake).values()) in ([4, 6, 6], [5, 5, 6]), "three rulers share the shards")
        _advance(lake, 1)
        first.kill()
        until(lambda: sorted(_held(lake).values()) == [8, 8], "the killed one's shards are taken over")
        frozen = psutil.Process(second._process.pid)
        os.kill(frozen.pid, signal.SIGSTOP)
        until(lambda: list(_held(lake).values()) == [16], "the frozen one's shards are taken over")
        _advance(lake, 2)
        os.kill(frozen.pid, signal.SIGCONT)
        until(lambda: sorted(_held(lake).values()) == [8, 8], "it has its share again")
        _advance(lake, 2)
    rows = lake.rows(METRICS)
    recorded = Counter(
        zip(rows.column("metric_name").to_pylist(), rows.column("timestamp").cast("int64").to_pylist(), strict=True)
    )
    assert set(recorded.values()) == {1}, "a sample is there twice"
    for group in _groups(lake):
        times = sorted(at for name, at in recorded if name == f"r{group.name[1:]}")
        assert group.missed == 0 and len(times) == group.evaluations >= 5
        assert times == list(range(times[0], times[-1] + 1, 1_000)), "an evaluation is neither stored nor counted"
    lake.close()
