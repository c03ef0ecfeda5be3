"""Every verb, in text and in JSON, over hostile data: nothing of it is markup, and nothing reaches the terminal raw.

The verbs are found by walking the command, so a new verb without a case fails here.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
import yaml
from typer.testing import CliRunner

from lakerunner.bus.open import open_bus
from lakerunner.cli.main import app
from lakerunner.cli.render import shown
from lakerunner.index.api_keys import Scope, create_key
from lakerunner.index.database import Database
from lakerunner.index.deletions import request_deletion
from lakerunner.index.ledger import record_seen
from lakerunner.index.orgs import create_org
from lakerunner.index.outbox import Outgoing
from lakerunner.index.profiles import StorageProfile, create_profile
from lakerunner.index.row_reports import put_reports
from lakerunner.index.rule_groups import GroupKey, put_group
from lakerunner.intake.rejections import RejectedKind, Rejection, put_rejected
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.errors import BadInput
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.row_report import Effect, RowReport, Sample
from lakerunner.ops.roles import CANARY_ROLES, DEMO_ROLES, ROLES, ROLES_BY_SIGNAL
from lakerunner.pipeline.rule_changes import apply_groups
from lakerunner.query.syntax.strings import quote
from lakerunner.rules.file import read_rules
from lakerunner.runtime.settings import Settings
from tests.cli.hostile_api import HOSTILE, STORABLE, hostile_api
from tests.components.postgres import PostgresServer

#: Roles and `serve` run until they are stopped and show only logs. tests/ops starts them.
RUN_UNTIL_STOPPED = {("serve",), *((role.name,) for role in (*ROLES, *CANARY_ROLES, *DEMO_ROLES, *ROLES_BY_SIGNAL))}
TOPIC = "segments.logs.ingest"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\U000e0041]")


@dataclass(frozen=True)
class World:
    """A lake with hostile contents. Each method makes what one run of a verb uses up."""

    database: Database
    url: str
    api: str
    folder: Path
    numbers: Iterator[int]

    def name(self) -> str:
        return f"{STORABLE} {next(self.numbers)}"

    def org(self) -> str:
        with self.database.transaction() as tx:
            return str(create_org(tx, f"[/red] 漢 {next(self.numbers)}").org_id)

    def with_deletion(self) -> str:
        org = self.org()
        wanted = DeletionRequest(uuid.UUID(org), "logs", STORABLE, "{}", 0, 1, STORABLE)
        with self.database.transaction() as tx:
            request_deletion(tx, wanted, 60.0, lambda _: True)
        return org

    def rule_file(self) -> str:
        """A file of one rule with hostile text."""
        path = self.folder / f"rules {next(self.numbers)}.yaml"
        match = f"{{service_name={quote(STORABLE)}}}"
        rule = {"materialize": "hostile", "signal": "logs", "match": match, "labels": {"a": STORABLE}}
        group = {"name": STORABLE, "rules": [rule]}
        path.write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
        return str(path)

    def with_rule(self) -> str:
        org = self.org()
        groups = read_rules(Path(self.rule_file()).read_text(encoding="utf-8"))
        apply_groups(self.database, uuid.UUID(org), groups, STORABLE, max_rules=10)
        return org

    def with_group(self) -> str:
        org = self.org()
        definition = "groups: [{name: a, rules: [{record: b, expr: up}]}]"
        with self.database.transaction() as tx:
            put_group(tx, GroupKey(uuid.UUID(org), "default", STORABLE), definition, STORABLE)
        return org

    def unit_test(self) -> str:
        """A test that fails and says so with hostile text."""
        path = self.folder / f"test {next(self.numbers)}.yaml"
        test = {"name": STORABLE, "alert_rule_test": [{"alertname": STORABLE, "exp_alerts": [{}]}]}
        path.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf-8")
        return str(path)

    def key(self) -> str:
        org_id = uuid.UUID(self.org())
        with self.database.transaction() as tx:
            return str(create_key(tx, self.name(), [Scope.QUERY], [org_id]).key.key_id)

    def profile(self) -> str:
        org_id = uuid.UUID(self.org())
        profile = StorageProfile(fresh_id(), org_id, STORABLE, f"s3://{self.name()}", STORABLE, None, STORABLE)
        with self.database.transaction() as tx:
            create_profile(tx, profile)
        return str(profile.profile_id)

    def quarantined(self) -> str:
        raw = RawObject(uuid.uuid4(), STORABLE, "logs", "s3://b", self.name(), "v1", 1)
        with self.database.transaction() as tx:
            record_seen(tx, [raw])
            tx.execute(
                "UPDATE raw_object SET state = 'quarantined', item_id = %s, reason = %s, ended_at = now()"
                " WHERE object_id = %s",
                [uuid.uuid4(), STORABLE, raw.object_id],
            )
        return str(raw.object_id)

    def reported(self) -> None:
        raw = RawObject(uuid.uuid4(), STORABLE, "logs", "s3://b", self.name(), "v1", 1)
        report = RowReport(Effect.CHANGED, STORABLE, 1, (Sample(STORABLE, STORABLE),))
        with self.database.transaction() as tx:
            record_seen(tx, [raw])
            tx.execute(
                "UPDATE raw_object SET state = 'done', item_id = object_id, row_count = 1, ended_at = now()"
                " WHERE object_id = %s",
                [raw.object_id],
            )
            put_reports(tx, [ObjectOutcome(raw.object_id, 1, reports=(report,))])

    def rejected(self) -> None:
        with self.database.transaction() as tx:
            put_rejected(tx, [Rejection(RejectedKind.UNMAPPED, "http", STORABLE, STORABLE, self.name(), STORABLE)])

    def dead_letter(self) -> str:
        bus = open_bus(Settings(), self.database)
        bus.ensure_topics()
        bus.publish([Outgoing(TOPIC, "k", HOSTILE.encode())])
        consumer = bus.consumer("g", [TOPIC])
        delivered = []
        while not delivered:
            delivered = consumer.poll(1, 1.0)
        consumer.fail(delivered[0], BadInput(STORABLE))
        consumer.commit()
        consumer.close()
        bus.close()
        answer = self.run("bus", "dead", "-o", "json")
        return str(orjson.loads(answer.stdout)[-1]["id"])

    def object(self) -> None:
        path = self.folder / "bucket" / "otel-raw" / f"[red]漢\u202e{next(self.numbers)} logs.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")

    def run(self, *args: str) -> Any:
        env = {"LAKERUNNER_INDEX_URL": self.url, "LAKERUNNER_DATA_DIR": str(self.folder)}
        env |= {"LAKERUNNER_API_URL": self.api, "COLUMNS": "80"}
        return CliRunner().invoke(app, list(args), env=env)


@pytest.fixture(scope="module")
def world(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = postgres_server.new_database()
    database = Database(url)
    with hostile_api() as api:
        yield World(database, url, api, tmp_path_factory.mktemp("[red]data"), itertools.count())
    database.close()
    postgres_server.drop_database(url)


@dataclass(frozen=True)
class Case:
    """The arguments of one run, and whether the hostile text is part of what it shows."""

    arguments: Callable[[World], list[str]]
    shows: str = ""
    code: int = 0


def made(make: Callable[[World], object], *arguments: str) -> Callable[[World], list[str]]:
    """Arguments that follow the making of something which the verb then lists."""

    def then(world: World) -> list[str]:
        make(world)
        return list(arguments)

    return then


CASES: dict[tuple[str, ...], Case] = {
    ("bus", "dead"): Case(made(World.dead_letter), STORABLE),
    ("bus", "lag"): Case(made(World.dead_letter)),
    ("bus", "redrive"): Case(lambda world: [world.dead_letter()]),
    ("bus", "tail"): Case(made(World.dead_letter, TOPIC), HOSTILE),
    ("config", "check"): Case(lambda _: ["--set", f"api.key={STORABLE}"]),
    ("config", "show"): Case(lambda _: ["--set", f"api.url={STORABLE}"], STORABLE),
    ("demo",): Case(lambda world: ["--past", "1s", "--rate", "1", "--seed", str(next(world.numbers))]),
    ("doctor",): Case(lambda _: [], "[red]data"),
    ("delete", "cancel"): Case(lambda world: [str(uuid.uuid4()), "--org", world.org()], code=1),
    ("delete", "list"): Case(lambda world: ["--org", world.with_deletion()], "pending"),
    ("delete", "show"): Case(lambda world: [str(uuid.uuid4()), "--org", world.org()], code=1),
    ("ingest", "backfill"): Case(made(World.object, "otel-raw/")),
    ("ingest", "quarantine", "list"): Case(made(World.quarantined), STORABLE),
    ("ingest", "quarantine", "retry"): Case(lambda world: [world.quarantined()]),
    ("ingest", "quarantine", "show"): Case(lambda world: [world.quarantined()], STORABLE),
    ("ingest", "reports"): Case(made(World.reported), STORABLE),
    ("ingest", "rejected"): Case(made(World.rejected), STORABLE),
    ("key", "create"): Case(lambda world: [world.name(), "--scope", "query", "--org", world.org()]),
    ("key", "list"): Case(made(World.key), STORABLE),
    ("key", "revoke"): Case(lambda world: [world.key()], STORABLE),
    ("migrate",): Case(lambda _: []),
    ("warm",): Case(lambda _: []),
    ("org", "create"): Case(lambda world: [f"[/red] 漢 {next(world.numbers)}"], "[/red] 漢"),
    ("org", "limits"): Case(lambda world: [world.org()]),
    ("org", "retention"): Case(lambda world: [world.org(), "--set", "logs=30d"], "forever"),
    ("org", "list"): Case(made(World.org), "[/red] 漢"),
    ("profile", "change"): Case(lambda world: [world.profile(), "--collector", STORABLE], STORABLE),
    ("profile", "create"): Case(
        lambda world: [f"s3://{world.name()}", "--org", world.org(), "--prefix", STORABLE], STORABLE
    ),
    ("profile", "list"): Case(made(World.profile), STORABLE),
    ("profile", "remove"): Case(lambda world: [world.profile()], STORABLE),
    ("query", "explain"): Case(lambda _: ["up"], HOSTILE),
    ("query", "fields"): Case(lambda _: ["{}"], HOSTILE),
    ("query", "labels"): Case(lambda _: [], HOSTILE),
    ("query", "logs"): Case(lambda _: ["{}"], HOSTILE),
    ("query", "metrics"): Case(lambda _: ["up"], HOSTILE),
    ("query", "patterns"): Case(lambda _: [], HOSTILE),
    ("query", "rows"): Case(lambda _: ["logs"], HOSTILE),
    # Refused before the API is asked: tests/pipeline/derive and tests/query/traces have what they show.
    ("query", "servicemap"): Case(lambda _: ["--start", "now", "--end", "now-1h"], code=2),
    ("query", "trace"): Case(lambda _: ["xyz"], code=2),
    ("query", "series"): Case(lambda _: ["up"], "[/red][bold]"),
    ("query", "volume"): Case(lambda _: [], "[/red][bold]"),
    ("rules", "apply"): Case(lambda world: [world.rule_file(), "--org", world.org()], "added"),
    ("rules", "backfill"): Case(lambda world: ["--org", world.with_rule()], "segments"),
    ("rules", "check"): Case(lambda world: [world.rule_file()], "errors"),
    ("rules", "delete"): Case(lambda world: ["hostile", "--org", world.with_rule()], "hostile"),
    ("rules", "drop"): Case(lambda world: [STORABLE, "--org", world.with_group()], STORABLE),
    ("rules", "explain"): Case(
        lambda world: ['sum(rate({service_name="a"}[1m]))', "--org", world.with_rule()], "hostile"
    ),
    ("rules", "groups"): Case(lambda world: ["--org", world.with_group()], STORABLE),
    ("rules", "suggest"): Case(lambda world: ["--org", world.org(), "--why"]),
    ("rules", "test"): Case(lambda world: [world.unit_test()], "0 of 1 files passed", code=1),
    ("rules", "list"): Case(lambda world: ["--org", world.with_rule()], STORABLE),
    ("rules", "show"): Case(lambda world: ["hostile", "--org", world.with_rule()], STORABLE),
    # Refused: the archive has hundreds of MB. tests/pipeline/spark builds a small one.
    ("spark", "package"): Case(lambda world: ["--to", f"{world.name()}.zip"], code=2),
    # Refused, because a simulation takes too long for here: tests/ops/simulate runs one.
    ("simulate",): Case(lambda world: [str(world.object() or "--keep"), str(world.folder)], code=2),
    ("status",): Case(lambda _: []),
    ("sweep",): Case(lambda _: ["--dry-run"]),
}  # fmt: skip


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path
        return
    for name, child in children.items():
        yield from verbs(child, (*path, name))


def test_every_verb_has_a_case() -> None:
    assert set(verbs(typer.main.get_command(app))) - RUN_UNTIL_STOPPED == set(CASES)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("verb", CASES, ids=" ".join)
def test_verb(world: World, verb: tuple[str, ...], form: str) -> None:
    case = CASES[verb]
    done = world.run(*verb, *case.arguments(world), "-o", form)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == case.code, done.output
    assert not RAW.search(done.stdout) and not RAW.search(done.stderr)
    assert "\n\n" not in done.stdout.strip()
    if form == "text" and verb != ("query", "explain"):
        assert shown(case.shows) in done.stdout
    elif case.code == 0:
        documents = done.stdout.splitlines() if verb in JSON_LINES else [done.stdout]
        assert any(case.shows in text for text in strings([orjson.loads(document) for document in documents]))
    if verb[0] == "query":
        assert all(line.startswith("lakerunner: ") for line in done.stderr.splitlines())


JSON_LINES = {("query", "metrics"), ("query", "rows"), ("query", "logs")}


def strings(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        document = [*document, *document.values()]
    if isinstance(document, list):
        for part in document:
            yield from strings(part)
    elif isinstance(document, str):
        yield document


def test_a_row_is_one_line_with_its_ids_whole_however_narrow_the_terminal(world: World) -> None:
    ids = {world.quarantined(), world.quarantined()}
    lines = world.run("ingest", "quarantine", "list").stdout.splitlines()
    assert ids <= {line.split()[0] for line in lines[1:]}
    assert all(uuid.UUID(line.split()[0]) for line in lines[1:])
    series = world.run("query", "series", "up").stdout
    assert len(series.splitlines()) == 1


def test_errors_of_the_api_are_shown_harmlessly(world: World) -> None:
    for verb in ("metrics", "logs"):
        done = world.run("query", verb, "refuse")
        assert done.exit_code == 1
        assert done.stderr == f"lakerunner: {shown(HOSTILE)}; {shown(HOSTILE)}\n"
    refused = world.run("query", "volume", '{a="refuse"}')
    assert refused.exit_code == 2 and not RAW.search(refused.stderr)


def test_log_verbs_in_their_other_forms(world: World) -> None:
    for options in (["--attributes"], ["--field", HOSTILE], ["--follow"], ["--follow", "-o", "json"], ["-o", "csv"]):
        done = world.run("query", "logs", "{}", *options)
        assert done.exit_code == 0, done.output
        if "csv" not in options:
            assert not RAW.search(done.stdout) and not RAW.search(done.stderr)
    assert "3 entries were dropped" in world.run("query", "logs", "{}", "-f").stderr
    assert shown(HOSTILE) in world.run("query", "logs", "rate({}[1m])").stdout
    assert "▁" in world.run("query", "logs", 'rate({a="b"}[1m])', "--plot").stdout
    plotted = world.run("query", "volume", "--plot")
    assert plotted.exit_code == 0 and "█" in plotted.stdout and not RAW.search(plotted.stdout)
    new = world.run("query", "patterns", "--new-since", "24h")
    assert new.exit_code == 0 and not RAW.search(new.stdout)
    assert world.run("query", "logs", "{}", "-f", "-o", "parquet").exit_code == 2


def test_the_json_of_totals_is_an_object(world: World) -> None:
    world.object()
    done = orjson.loads(world.run("ingest", "backfill", "otel-raw/", "-o", "json").stdout)
    assert sum(done["counts"].values()) == done["listed"] > 0
    tally = orjson.loads(world.run("demo", "--past", "1s", "--rate", "1", "--seed", "999", "-o", "json").stdout)
    assert tally["objects"].keys() == tally["records"].keys() >= {"metrics"}


def test_times_are_shown_as_times(world: World) -> None:
    world.org()
    for row in orjson.loads(world.run("org", "list", "-o", "json").stdout):
        assert datetime.fromisoformat(row["created_at"]) <= datetime.now(UTC)
