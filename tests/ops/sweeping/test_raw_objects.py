"""Raw objects are deleted after their ingest where the profile says so, and only those."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index import sweep_ledger
from lakerunner.index.orgs import create_org
from lakerunner.index.profiles import StorageProfile, change_profile, create_profile
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import BadInput, Missing
from lakerunner.model.signals import LOGS
from lakerunner.ops.sweeping.raw_objects import delete_raw_objects
from lakerunner.store import keys
from tests.pipeline.compact.small_lake import ingest
from tests.pipeline.lake import ORG, Lake, otlp, settings_of


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(settings_of(database_url, tmp_path))
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
    yield lake
    lake.close()


def profile(lake: Lake, after_s: float | None) -> StorageProfile:
    made = StorageProfile(
        uuid.uuid4(), ORG, "shop", own_bucket(lake.settings), keys.raw_prefix(ORG), delete_raw_after_s=after_s
    )
    with lake.database.transaction() as tx:
        return create_profile(tx, made)


def age(lake: Lake, seconds: float) -> None:
    with lake.database.transaction() as tx:
        tx.execute("UPDATE raw_object SET ended_at = ended_at - make_interval(secs => %s)", [seconds])


def is_there(lake: Lake, key: str) -> bool:
    try:
        lake.store.head(key)
    except Missing:
        return False
    return True


def test_an_ingested_object_is_deleted_after_its_time(lake: Lake) -> None:
    profile(lake, 600.0)
    first, second = (lake.put(LOGS, otlp(LOGS, 5, seed=seed)) for seed in (1, 2))
    ingest(lake, first)
    assert delete_raw_objects(lake.settings, lake.database) == 0
    age(lake, 700)
    assert delete_raw_objects(lake.settings, lake.database) == 1
    assert not is_there(lake, first.key)
    assert is_there(lake, second.key), "it was not ingested"
    ingest(lake, second)
    age(lake, 700)
    assert delete_raw_objects(lake.settings, lake.database) == 1
    assert delete_raw_objects(lake.settings, lake.database) == 0
    with lake.database.transaction() as tx:
        assert {each.name for each in sweep_ledger.list_entries(tx, 10, "raw")} == {first.key, second.key}


def test_objects_are_kept_by_default(lake: Lake) -> None:
    made = profile(lake, None)
    raw = lake.put(LOGS, otlp(LOGS, 5))
    ingest(lake, raw)
    age(lake, 1e7)
    assert delete_raw_objects(lake.settings, lake.database) == 0
    assert is_there(lake, raw.key)
    with lake.database.transaction() as tx, pytest.raises(BadInput, match="kept for 600 s"):
        change_profile(tx, made.profile_id, {"delete_raw_after_s": 1.0})


def test_an_object_that_was_overwritten_stays(lake: Lake) -> None:
    profile(lake, 600.0)
    raw = lake.put(LOGS, otlp(LOGS, 5))
    ingest(lake, raw)
    lake.store.put(raw.key, otlp(LOGS, 6, seed=2), create_only=False)
    age(lake, 700)
    assert delete_raw_objects(lake.settings, lake.database) == 0
    assert is_there(lake, raw.key)


def test_quarantined_objects_stay(lake: Lake) -> None:
    profile(lake, 600.0)
    raw = lake.put(LOGS, b"\xff not OTLP \x00")
    ingest(lake, raw)
    age(lake, 700)
    assert lake.states() == {"quarantined": 1}
    assert delete_raw_objects(lake.settings, lake.database) == 0
    assert is_there(lake, raw.key)
