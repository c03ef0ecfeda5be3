"""Minutes of objectives: objects in time are good, late and waiting ones are bad, and burn rates are their sums."""

import uuid
from datetime import UTC, datetime, timedelta

from lakerunner.index import ledger, objectives
from lakerunner.index.database import Database
from lakerunner.index.objectives import Burn, Minute
from lakerunner.model.raw_object import RawObject

MINUTE = datetime(2026, 11, 17, 6, 0, tzinfo=UTC)


def put(database: Database, name: str, seen_s: float, ended_s: float | None) -> None:
    """An object that was seen and ended so many seconds after the beginning of the minute."""
    raw = RawObject(uuid.UUID(int=7), "edge", "logs", "s3://raw", name, "v", 10)
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw])
        tx.execute("UPDATE raw_object SET seen_at = %s WHERE object_id = %s", [at(seen_s), raw.object_id])
        if ended_s is not None:
            tx.execute(
                "UPDATE raw_object SET state = 'done', item_id = object_id, ended_at = %s WHERE object_id = %s",
                [at(ended_s), raw.object_id],
            )


def at(seconds: float) -> datetime:
    return MINUTE + timedelta(seconds=seconds)


def test_a_minute_counts_what_ended_in_it_and_what_still_waits_too_long(database: Database) -> None:
    put(database, "in time", 0, 20)
    put(database, "late", -50, 20)
    put(database, "of the minute before", -70, -60 + 59)
    put(database, "waits too long", -100, None)
    put(database, "waits a little", 40, None)
    with database.transaction() as tx:
        assert objectives.measure_freshness(tx, MINUTE, 30.0) == [Minute("freshness", "logs", MINUTE, 1, 3)]


def test_burn_rates_are_sums_over_windows_and_old_minutes_go(database: Database) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with database.transaction() as tx:
        for minutes_ago, good in ((1, 90), (30, 100), (60 * 24 * 5, 0)):
            minute = now - timedelta(minutes=minutes_ago)
            objectives.put_minute(tx, Minute("freshness", "logs", minute, 0, 100))
            # Measured again, it is replaced.
            objectives.put_minute(tx, Minute("freshness", "logs", minute, good, 100))
        objectives.put_minute(tx, Minute("freshness", "traces", now - timedelta(minutes=1), 100, 100))
        found = objectives.burns(tx, (300, 3600))
        assert found == [Burn("freshness", 300, 190, 200), Burn("freshness", 3600, 290, 300)]
        assert [burn.rate(0.99) for burn in found] == [5.0, 3.333333333]
        assert objectives.forget_minutes(tx, 10) == 1
        assert objectives.burns(tx, (300, 3600)) == found
