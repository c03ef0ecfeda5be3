"""The catalog of rules: versions, what segments were evaluated with, and which stretches of time a rule covers."""

import uuid
from dataclasses import replace

import pytest

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.deletions import request_deletion
from lakerunner.index.lookup import Want, find, find_covered
from lakerunner.index.retention import Kept, end_expired
from lakerunner.index.rule_catalog import (
    NewRule,
    StoredRule,
    catalog_version,
    change_rules,
    find_rule,
    live_rules,
    rules_at,
    versions_of,
)
from lakerunner.index.rule_coverage import CoverageRange, Uncovered, coverage
from lakerunner.index.rule_holes import Hole, record_holes
from lakerunner.index.rule_versions import Evaluated, RulesUsed
from lakerunner.index.segments import live_segments, ref
from lakerunner.index.work import WorkItem, create_item, item_id
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.errors import Missing, Unavailable
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_S, TimeRange

ORG, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
START = 1_700_000_000 * NS_PER_S
ALWAYS = TimeRange(0, 8_000_000_000 * NS_PER_S)


def new(name: str, signal: str = "logs", **definition: str) -> NewRule:
    return NewRule(signal, name, "g", definition)


def put(database: Database, *rules: NewRule, org: uuid.UUID = ORG) -> list[StoredRule]:
    with database.transaction() as tx:
        return change_rules(tx, org, rules, (), "tests")


def segment(start_s: int = 0, seconds: int = 10, version: int = 0, signal: str = "logs") -> Segment:
    start_ns = START + start_s * NS_PER_S
    times = TimeRange(start_ns, start_ns + seconds * NS_PER_S)
    return Segment(fresh_id(), ORG, "edge", signal, times, 10, 100, rules_version=version)


def commit(database: Database, result: ItemResult) -> Outcome:
    with database.transaction() as tx:
        create_item(tx, WorkItem(result.item_id, "ingest", ORG, "logs"))
    return commit_item(database, result)


def new_item() -> uuid.UUID:
    return item_id("ingest", [fresh_id()])


def stored(database: Database, *segments: Segment) -> None:
    assert commit(database, ItemResult(new_item(), segments)) is Outcome.COMMITTED


def uncovered(database: Database, rule: StoredRule, start_s: int = 0, end_s: int = 100) -> list[tuple[int, int, str]]:
    """In seconds from START; the range is open at the left and closed at the right."""
    start_ns, end_ns = START + start_s * NS_PER_S, START + end_s * NS_PER_S
    wants = [Want(signal, TimeRange(start_ns, end_ns)) for signal in ("logs", "metrics")]
    # What queries ask, in one statement: the segments, and the coverage of several rules and times.
    asked = [CoverageRange(rule, start_ns, end_ns), CoverageRange(rule, start_ns, start_ns + NS_PER_S)]
    with database.transaction() as tx:
        found = coverage(tx, ORG, rule, start_ns, end_ns)
        segments, together = find_covered(tx, ORG, wants, asked)
        assert segments == find(tx, ORG, wants)
        assert together == [found, coverage(tx, ORG, rule, start_ns, start_ns + NS_PER_S)]
    return [((each.start_ns - START), (each.end_ns - START), each.reason) for each in found]


def test_a_changed_rule_is_a_new_version_of_the_catalog_and_of_itself(database: Database) -> None:
    [first] = put(database, new("errors", match="a"))
    put(database, new("spans", "traces"))
    [second] = put(database, new("errors", match="b"))
    assert (first.version, first.since_version, second.version, second.since_version) == (1, 1, 2, 2)
    with database.transaction() as tx:
        assert [rule.name for rule in live_rules(tx, ORG)] == ["errors", "spans"]
        assert find_rule(tx, ORG, "errors") == second
        assert [rule.rule_id for rule in rules_at(tx, ORG, "logs", 1)] == [first.rule_id]
        assert [rule.retired_reason for rule in versions_of(tx, ORG, "errors")] == [None, "replaced"]
        assert (catalog_version(tx, ORG, "logs"), catalog_version(tx, ORG, "traces")) == (2, 1)
        change_rules(tx, ORG, (), ["errors"], "tests")
    with database.transaction() as tx:
        assert catalog_version(tx, ORG, "logs") == 3 and not rules_at(tx, ORG, "logs", 3)
        with pytest.raises(Missing):
            find_rule(tx, ORG, "errors")


def test_orgs_have_catalogs_of_their_own(database: Database) -> None:
    put(database, new("errors"))
    put(database, new("errors"), new("others"), org=OTHER)
    with database.transaction() as tx:
        assert [rule.name for rule in live_rules(tx, ORG)] == ["errors"]
        assert catalog_version(tx, ORG, "logs") == catalog_version(tx, OTHER, "logs") == 1


def test_a_rule_covers_what_was_evaluated_with_it(database: Database) -> None:
    [rule] = put(database, new("errors"))
    stored(database, segment(0, version=0), segment(50, version=1))
    assert [each[:2] for each in uncovered(database, rule)] == [(1, 10 * NS_PER_S)]
    assert uncovered(database, rule, 10) == []
    # A range that ends with the first row of the segment sees it.
    assert uncovered(database, rule, -50, 0) == [(0, 1, "rows were ingested before the rule, or without it")]
    assert uncovered(database, rule, -50, -1) == []


def test_a_retired_rule_covers_nothing(database: Database) -> None:
    [rule] = put(database, new("errors"))
    stored(database, segment(version=1))
    put(database, new("errors", match="b"))
    assert uncovered(database, rule)[-1][2] == "the rule is retired"


def test_backfill_raises_the_version_and_commits_once(database: Database) -> None:
    old = segment()
    stored(database, old)
    [rule] = put(database, new("errors"))
    derived = segment(signal="metrics")
    evaluated = [Evaluated(ref(old), 0, 1)]
    assert commit(database, ItemResult(new_item(), [derived], evaluated=evaluated)) is Outcome.COMMITTED
    assert uncovered(database, rule) == []
    assert commit(database, ItemResult(new_item(), [segment()], evaluated=evaluated)) is Outcome.STALE


def test_what_was_evaluated_while_it_was_merged_is_not_replaced(database: Database) -> None:
    old = segment()
    stored(database, old)
    put(database, new("errors"))
    assert commit(database, ItemResult(new_item(), evaluated=[Evaluated(ref(old), 0, 1)])) is Outcome.COMMITTED
    merged = replace(segment(), rules_version=0)
    late = ItemResult(new_item(), [merged], [ref(old)], rules_versions={old.segment_id: 0})
    assert commit(database, late) is Outcome.STALE
    again = ItemResult(new_item(), [replace(merged, rules_version=1)], [ref(old)], rules_versions={old.segment_id: 1})
    assert commit(database, again) is Outcome.COMMITTED
    with database.transaction() as tx:
        assert [each.rules_version for each in live_segments(tx, ORG, "logs", ALWAYS)] == [1]


def test_samples_of_a_rule_that_was_changed_are_not_committed(database: Database) -> None:
    [rule, other] = put(database, new("errors"), new("other"))
    used = RulesUsed("logs", 1, [rule.rule_id])
    put(database, new("third"))
    assert commit(database, ItemResult(new_item(), [segment()], rules=used)) is Outcome.COMMITTED
    put(database, new("errors", match="b"))
    with pytest.raises(Unavailable, match="changed meanwhile"):
        commit(database, ItemResult(new_item(), [segment()], rules=used))
    untouched = RulesUsed("logs", 1, [other.rule_id])
    assert commit(database, ItemResult(new_item(), [segment()], rules=untouched)) is Outcome.COMMITTED


def test_holes_are_of_a_rule_or_of_a_signal(database: Database) -> None:
    [rule, other] = put(database, new("errors"), new("other"))
    with database.transaction() as tx:
        start_ns = START // (600 * NS_PER_S) * 600 * NS_PER_S
        for _ in range(2):
            record_holes(tx, ORG, [Hole("logs", rule.rule_id, start_ns + 5, start_ns + 6, "it failed")])
        found = coverage(tx, ORG, rule, 0, START * 2)
        assert found == [Uncovered(start_ns, start_ns + 600 * NS_PER_S, "it failed")]
        assert coverage(tx, ORG, other, 0, START * 2) == []
        record_holes(tx, ORG, [Hole("logs", 0, 0, START, "long")])
        assert coverage(tx, ORG, other, 0, START * 2) == [Uncovered(1, START, "long")]


def test_deleted_and_expired_rows_are_holes(database: Database) -> None:
    [rule] = put(database, new("errors"))
    stored(database, segment(0, version=1), segment(0, signal="metrics"))
    request = DeletionRequest(ORG, "logs", "{}", "", START, START + NS_PER_S, "tests")
    with database.transaction() as tx:
        request_deletion(tx, request, 60.0, lambda _: True)
    assert [each[2] for each in uncovered(database, rule)] == ["rows were deleted on request"]
    with database.transaction() as tx:
        assert end_expired(tx, ORG, Kept("metrics"), 1.0, 10)
    assert [each[2] for each in uncovered(database, rule, 1)] == ["metrics have expired"]
