"""The monitor outlives an index that is too slow to count."""

from pathlib import Path

import psycopg

from lakerunner.ops.monitor.gauges import STATUS_DEGRADED
from lakerunner.ops.monitor.role import Monitor
from lakerunner.runtime.settings import DataSettings, IndexSettings, Settings
from lakerunner.runtime.stop import Stop


class StopAfter(Stop):
    """Asks to stop at the n-th wait, and waits for nothing."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.left = waits

    def wait(self, timeout_s: float) -> bool:
        self.left -= 1
        if not self.left:
            self.request()
        return super().wait(0)


def test_a_slow_count_degrades_the_status_and_does_not_end_the_role(database_url: str, tmp_path: Path) -> None:
    monitor = Monitor(
        Settings(data=DataSettings(dir=tmp_path), index=IndexSettings(url=database_url, statement_timeout_s=0.05))
    )
    try:
        with psycopg.connect(database_url) as blocking:
            blocking.execute("LOCK TABLE outbox, tally")
            monitor.run(StopAfter(2))
        assert STATUS_DEGRADED._value.get() == 8
        monitor.run(StopAfter(1))
        assert STATUS_DEGRADED._value.get() == 0
    finally:
        monitor.close()
