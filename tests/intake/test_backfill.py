"""A backfill records objects missing in the ledger, on every kind of store, and can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakerunner.index import leases
from lakerunner.intake import backfill as module
from lakerunner.intake.backfill import BackfillProgress, backfill
from lakerunner.intake.events import ObjectEvent, ParsedEvent
from lakerunner.intake.reconcile import Reconciler
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import BadInput
from lakerunner.runtime.stop import Stop
from tests.intake.conftest import Lake, S3Lake, write


def root(lake: Lake) -> Path:
    return Path(lake.bucket.removeprefix("file://"))


def test_it_records_what_is_missing_in_pages(lake: Lake, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    keys = [f"otel-raw/logs_{number:02d}.json" for number in range(35)]
    for key in keys:
        write(root(lake), key)
    recorder.record_events([ParsedEvent((ObjectEvent(lake.bucket, keys[3]),))], "test")
    seen: list[tuple[int, str]] = []
    done = backfill(recorder, lake.bucket, "otel-raw/", on_page=lambda p: seen.append((p.listed, p.last_key)))
    assert (done.listed, done.counts["recorded"], done.counts["known"]) == (35, 34, 1)
    assert seen == [(10, keys[9]), (20, keys[19]), (30, keys[29]), (35, keys[34])]
    lake.assert_each_once(keys)
    again = backfill(recorder, lake.bucket, "otel-raw/")
    assert +again.counts == {"known": 35}


def test_it_goes_on_where_it_was_interrupted(lake: Lake, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    keys = [f"otel-raw/logs_{number:02d}.json" for number in range(25)]
    for key in keys:
        write(root(lake), key)

    class Enough(Exception):
        pass

    last: list[str] = []

    def stop_after_a_page(progress: BackfillProgress) -> None:
        last.append(progress.last_key)
        raise Enough

    with pytest.raises(Enough):
        backfill(recorder, lake.bucket, "otel-raw/", on_page=stop_after_a_page)
    done = backfill(recorder, lake.bucket, "otel-raw/", start_after=last[0])
    assert done.listed == 15
    lake.assert_each_once(keys)


def test_a_prefix_may_end_within_a_name(lake: Lake, recorder: Recorder) -> None:
    for key in ("otel-raw/logs_1.json", "otel-raw/logs_2.json", "otel-raw/metrics_1.json"):
        write(root(lake), key)
    backfill(recorder, lake.bucket, "otel-raw/logs_")
    lake.assert_each_once(["otel-raw/logs_1.json", "otel-raw/logs_2.json"])


def test_unmapped_objects_get_in_after_a_profile_is_added(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "app/1.json")
    assert +backfill(recorder, lake.bucket, "").counts == {"unmapped": 1}
    lake.add_profile("app/", signal="logs")
    assert +backfill(recorder, lake.bucket, "").counts == {"recorded": 1}
    assert lake.rejected() == []


def test_segments_are_not_inputs(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "db/o/c/20261115/logs/21/tbl_1.parquet")
    assert +backfill(recorder, lake.bucket, "").counts == {"ignored": 1}


def test_a_file_written_a_moment_ago_waits(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    done = backfill(recorder, lake.bucket, "otel-raw/", settle_s=60)
    assert (done.unsettled, lake.keys()) == (1, [])


def test_another_bucket_is_refused(recorder: Recorder) -> None:
    with pytest.raises(BadInput, match="cannot backfill from s3://elsewhere"):
        backfill(recorder, "s3://elsewhere", "otel-raw/")


def test_listing_and_event_agree_on_s3(
    make_s3_lake: Callable[..., S3Lake], make_recorder: Callable[[Lake], Recorder]
) -> None:
    s3_lake = make_s3_lake()
    lake = s3_lake.lake
    lake.add_profile("otel-raw/")
    s3_lake.s3.put_bucket_versioning(Bucket=s3_lake.bucket_name, VersioningConfiguration={"Status": "Enabled"})
    s3_lake.put("otel-raw/logs_1.json", b"one")
    recorder = make_recorder(lake)
    recorder.record_events([ParsedEvent((ObjectEvent(lake.bucket, "otel-raw/logs_1.json"),))], "test")
    assert +backfill(recorder, lake.bucket, "otel-raw/").counts == {"known": 1}
    s3_lake.put("otel-raw/logs_1.json", b"two")
    assert +backfill(recorder, lake.bucket, "otel-raw/").counts == {"recorded": 1}
    assert len(lake.ledger()) == 2


def test_reconciliation_heals_a_lost_event_and_only_one_does_it(
    make_s3_lake: Callable[..., S3Lake], make_recorder: Callable[[Lake], Recorder]
) -> None:
    s3_lake = make_s3_lake()
    lake = s3_lake.lake
    lake.add_profile("otel-raw/")
    s3_lake.put("otel-raw/logs_1.json")
    reconciler = Reconciler(make_recorder(lake), lake.database, lake.settings.intake)
    other = leases.acquire(lake.database, "intake-reconcile", "another", 60)
    assert other is not None
    assert reconciler.round(Stop()) is False
    leases.release(lake.database, other)
    assert reconciler.round(Stop()) is True
    lake.assert_each_once(["otel-raw/logs_1.json"])


def test_a_bad_bucket_or_key_does_not_stop_the_reconciliation_of_the_others(
    make_s3_lake: Callable[..., S3Lake], make_recorder: Callable[[Lake], Recorder]
) -> None:
    """Prefixes are listed in the order of their names: the bad ones come first."""
    s3_lake = make_s3_lake()
    lake = s3_lake.lake
    lake.add_profile("otel-raw/")
    lake.add_profile("x/", bucket="s3://a-bucket-without-credentials", credentials_ref="ABSENT")
    s3_lake.put("logs-raw/a//logs_0.json")
    s3_lake.put("otel-raw/logs_1.json")
    reconciler = Reconciler(make_recorder(lake), lake.database, lake.settings.intake)
    assert reconciler.round(Stop()) is True
    lake.assert_each_once(["otel-raw/logs_1.json"])
    assert {(row.bucket, row.key): row.source for row in lake.rejected()} == {
        ("s3://a-bucket-without-credentials", "x/"): "reconcile",
        (lake.bucket, "logs-raw/"): "reconcile",
    }
    s3_lake.s3.delete_object(Bucket=s3_lake.bucket_name, Key="logs-raw/a//logs_0.json")
    assert reconciler.round(Stop()) is True
    assert [row.key for row in lake.rejected()] == ["x/"], "trouble that is over is not shown any more"
