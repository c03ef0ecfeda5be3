"""S3 in trouble: a tenth of all calls fails, or all do for a while. Ingest pauses and finishes; nothing is lost.

`LAKERUNNER_TEST_OUTAGE_S=20` makes the outage longer, `LAKERUNNER_TEST_SEED=7` draws other failures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakerunner.intake.buckets import own_bucket
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.store import keys
from tests.components.moto import CREDENTIALS, running_moto
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.faults.event_folder import EventFolder
from tests.faults.exactness import check_index, check_rows, orphans
from tests.pipeline.lake import COLLECTOR, ORG, otlp
from tests.pipeline.s3_lake import S3Lake, s3_settings
from tests.store.faulty_proxy import FaultyProxy, faulty_proxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTAGE_S = float(os.environ.get("LAKERUNNER_TEST_OUTAGE_S", "5"))
SEED = int(os.environ.get("LAKERUNNER_TEST_SEED", "1"))

pytestmark = [pytest.mark.slow]


class Troubled:
    """A lake over a proxy, with all stages beside the test."""

    def __init__(self, s3_lake: S3Lake, proxy: FaultyProxy, folder: Path) -> None:
        self.s3_lake = s3_lake
        self.lake = s3_lake.lake
        self.proxy = proxy
        self.events = EventFolder(folder / "events")
        self.sent: dict[Signal, list[bytes]] = {signal: [] for signal in SIGNALS}

    def send(self, count: int) -> None:
        """That many objects of each signal, and their events."""
        for signal in SIGNALS:
            for _ in range(count):
                number = len(self.sent[signal])
                body = otlp(signal, 40, seed=number)
                key = f"{keys.raw_prefix(ORG)}{COLLECTOR}/{signal}_{number}.binpb"
                self.lake.store.put(key, body)
                self.sent[signal].append(body)
                self.events.send(own_bucket(self.lake.settings), key)

    def roles(self) -> list[clean_roles.Loop]:
        return [
            clean_roles.intake(self.lake, self.events),
            clean_roles.relay(self.lake),
            clean_roles.boxer(self.lake),
            clean_roles.ingest(self.lake, self.s3_lake.runner),
        ]

    @property
    def is_done(self) -> bool:
        return self.events.is_empty and self.lake.states() == {"done": sum(map(len, self.sent.values()))}

    def check(self) -> None:
        self.proxy.fail_at_random(0.0, 0)
        check_rows(self.lake, self.sent)
        check_index(self.lake, self.sent)


@pytest.fixture
def troubled(
    tmp_path: Path, database_url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Troubled]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_moto(tmp_path) as moto, faulty_proxy(moto.host, moto.port) as proxy:
        s3_lake = S3Lake(s3_settings(database_url, tmp_path, moto, proxy.endpoint), spark)
        yield Troubled(s3_lake, proxy, tmp_path)
        s3_lake.close()


def test_a_tenth_of_all_calls_fails(troubled: Troubled) -> None:
    troubled.proxy.fail_at_random(0.1, SEED)
    with beside(*troubled.roles()):
        for _ in range(4):
            troubled.send(3)
        until(lambda: troubled.is_done, f"all is done; seed {SEED}", 120)
    assert troubled.proxy.failed > 0.05 * len(troubled.proxy.calls) > 1, "the store must have failed"
    troubled.check()


@pytest.mark.timeout(300)
def test_an_outage_is_waited_out(troubled: Troubled) -> None:
    with beside(*troubled.roles()):
        troubled.send(2)
        until(lambda: troubled.is_done, "what came before")
        # In the bucket, and on its way through the stages when the store goes.
        troubled.send(4)
        troubled.proxy.is_down = True
        began = time.monotonic()
        before = troubled.proxy.failed
        time.sleep(OUTAGE_S)
        assert not troubled.is_done, "the outage must have held something up"
        calls = troubled.proxy.failed - before
        troubled.proxy.is_down = False
        until(lambda: troubled.is_done, "all is done after the outage", 120)
    waited_s = time.monotonic() - began
    assert calls < 100 * OUTAGE_S, f"{calls} calls at a store that is down for {OUTAGE_S} s"
    assert waited_s < OUTAGE_S + 60
    troubled.check()
    # Attempts that failed half-way leave files that nobody names; what is named is complete.
    assert len(orphans(troubled.lake, troubled.sent)) <= calls
