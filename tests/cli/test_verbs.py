"""The verbs over a real index, with text and JSON output."""

from pathlib import Path

import pytest

from lakerunner.bus.open import open_bus
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.outbox import Outgoing
from lakerunner.intake.rejections import RejectedKind, Rejection, put_rejected
from lakerunner.model.errors import BadInput
from lakerunner.model.raw_object import ObjectOutcome
from lakerunner.model.row_report import Effect, RowReport, Sample
from lakerunner.runtime.settings import Settings
from tests.cli.conftest import Run, run_lakerunner
from tests.index.test_commit import ingest_item


def test_orgs_and_keys_from_making_to_revoking(lakerunner: Run) -> None:
    org = lakerunner("org", "create", "acme", "-o", "json").json()
    assert [row["name"] for row in lakerunner("org", "list", "-o", "json").json()] == ["acme"]
    key = lakerunner("key", "create", "grafana", "--scope", "query", "--org", "acme", "-o", "json").json()
    assert key["org_ids"] == [org["org_id"]]
    assert key["secret"].startswith("lrk_")
    listed = lakerunner("key", "list", "-o", "json")
    assert key["secret"] not in listed.out
    assert lakerunner("key", "revoke", key["key_id"]).out == f"revoked key grafana ({key['key_id']})\n"
    assert lakerunner("key", "list", "-o", "json").json()[0]["revoked_at"]


def test_limits_of_an_org(lakerunner: Run) -> None:
    lakerunner("org", "create", "acme")
    made = ["--set", "max_series=10000", "--set", "timeout_s=2.5", "--set", "api.max_steps=77", "-o", "json"]
    shown = {row["limit"]: row for row in lakerunner("org", "limits", "acme", *made).json()}
    assert shown["max_series"] == {"limit": "max_series", "value": 10_000, "own": True}
    assert shown["timeout_s"]["value"] == 2.5
    assert shown["max_steps"] == {"limit": "max_steps", "value": 77, "own": False}, "a setting, as everywhere"
    shown = {
        row["limit"]: row for row in lakerunner("org", "limits", "acme", "--unset", "max_series", "-o", "json").json()
    }
    assert not shown["max_series"]["own"] and shown["timeout_s"]["own"]
    wrong = lakerunner("org", "limits", "acme", "--set", "max_serie=1")
    assert (wrong.code, "did you mean max_series?" in wrong.err) == (2, True)
    wrong = lakerunner("org", "limits", "acme", "--set", "max_series=many")
    assert (wrong.code, "cannot set the limit max_series to 'many'" in wrong.err) == (2, True)
    assert lakerunner("org", "limits", "nobody").code == 1


def test_a_new_key_is_all_that_text_shows(lakerunner: Run) -> None:
    # So that KEY=$(lakerunner key create …) works in a script.
    assert lakerunner("key", "create", "root", "--scope", "admin").out.startswith("lrk_")


def test_tables_have_a_head(lakerunner: Run) -> None:
    lakerunner("org", "create", "acme")
    head, row = lakerunner("org", "list").out.splitlines()
    assert head.split() == ["org_id", "name", "created_at"]
    assert "acme" in row


def test_migrate_says_what_it_did(lakerunner: Run) -> None:
    assert lakerunner("migrate").out == "the schema is up to date\n"
    assert lakerunner("migrate", "-o", "json").json() == {"applied": []}


def test_status_counts(lakerunner: Run) -> None:
    document = lakerunner("status", "-o", "json").json()
    assert document["index"]["objects"] == {"seen": 0, "bundled": 0, "done": 0, "quarantined": 0}
    assert "objects" in lakerunner("status").out


def test_rows_and_events_that_did_not_arrive_as_sent_are_shown(lakerunner: Run, database: Database) -> None:
    item_id, (object_id,) = ingest_item(database, "logs_a.json")
    broken = RowReport(Effect.REJECTED, "bad_json", 7, (Sample("line 2", "no json\\x1b"),))
    outcome = ObjectOutcome(object_id, 10, reports=(broken, RowReport(Effect.CHANGED, "no_time", 3)))
    commit_item(database, ItemResult(item_id, objects=[outcome]))
    with database.transaction() as tx:
        put_rejected(tx, [Rejection(RejectedKind.UNMAPPED, "sqs", "no profile", "s3://b", "k")])
    [shown] = lakerunner("ingest", "reports", "-o", "json").json()
    assert (shown["object_id"], shown["key"], shown["row_count"]) == (str(object_id), "logs_a.json", 10)
    assert shown["reports"] == [
        {"effect": "rejected", "reason": "bad_json", "rows": 7,
         "samples": [{"where": "line 2", "excerpt": "no json\\x1b"}]},
        {"effect": "changed", "reason": "no_time", "rows": 3, "samples": []},
    ]  # fmt: skip
    head, rejected, changed = lakerunner("ingest", "reports").out.splitlines()
    assert head.split() == ["object_id", "signal", "key", "effect", "reason", "rows", "sample"]
    assert rejected.endswith("line 2: no json\\x1b")
    assert changed.split() == [str(object_id), "logs", "logs_a.json", "changed", "no_time", "3", "-"]
    losses = lakerunner("status", "-o", "json").json()["losses"]
    assert losses["events"] == {"unmapped": 1}
    assert [(line["effect"], line["reason"], line["rows"]) for line in losses["rows"]] == [
        ("rejected", "bad_json", 7),
        ("changed", "no_time", 3),
    ]
    status = lakerunner("status").out
    assert "rejected in the last hour: bad_json" in status and "rejected: unmapped" in status


def test_doctor_finds_what_is_well_and_what_is_not(lakerunner: Run, tmp_path: Path) -> None:
    well = lakerunner("doctor", "-o", "json", env={"LAKERUNNER_DATA_DIR": str(tmp_path)})
    assert well.code == 0, well.out
    assert [finding["subject"] for finding in well.json()] == [
        "user", "java", "disk", "folder", "postgresql", "schema", "permissions", "clock", "bus", "bucket", "queue",
        "spark", "workers",
    ]  # fmt: skip
    env = {"LAKERUNNER_STORE_URL": "file:///proc/nowhere", "LAKERUNNER_STORE_MAX_ATTEMPTS": "1"}
    ill = lakerunner("doctor", "-o", "json", env=env)
    assert ill.code == 1
    [found] = [finding for finding in ill.json() if not finding["ok"]]
    assert found["subject"] == "bucket" and found["fix"]


def test_config_show_stars_passwords() -> None:
    env = {"LAKERUNNER_INDEX_URL": "postgresql://lake:hunter2@db/lrdb"}
    for form in ("text", "json"):
        shown = run_lakerunner("config", "show", "-o", form, env=env)
        assert shown.code == 0
        assert "hunter2" not in shown.out
        assert "postgresql://lake:***@db/lrdb" in shown.out


def test_what_a_verb_creates_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    env = {"LAKERUNNER_DATA_DIR": str(data)}
    assert run_lakerunner("demo", "--past", "1s", "--rate", "1", env=env).code == 0
    assert [path for path in (data, *data.rglob("*")) if path.stat().st_mode & 0o077] == []


def test_bus_verbs(lakerunner: Run, database: Database) -> None:
    bus = open_bus(Settings(), database)
    bus.ensure_topics()
    bus.publish([Outgoing("segments.logs.ingest", "k", b"what is this")])
    consumer = bus.consumer("g", ["segments.logs.ingest"])
    delivered = []
    while not delivered:
        delivered = consumer.poll(1, 1.0)
    assert lakerunner("bus", "tail", "segments.logs.ingest", "-o", "json").json()[0]["message"] == "what is this"
    consumer.fail(delivered[0], BadInput("cannot read it"))
    consumer.commit()
    consumer.close()
    (letter,) = lakerunner("bus", "dead", "-o", "json").json()
    assert letter["reason"] == "cannot read it"
    assert lakerunner("bus", "redrive", letter["id"]).out == "redrove 1 messages\n"
    assert lakerunner("bus", "dead", "-o", "json").json() == []
    lags = lakerunner("bus", "lag", "-o", "json").json()
    assert sum(row["lag"] for row in lags if row["group"] == "g") == 1
    bus.close()


@pytest.mark.parametrize("verb", [[], ["--help"], ["serve", "--help"], ["key", "create", "--help"]])
def test_help_teaches(verb: list[str]) -> None:
    done = run_lakerunner(*verb)
    assert "Usage" in done.out + done.err


def test_version() -> None:
    assert run_lakerunner("--version").out.startswith("lakerunner ")
