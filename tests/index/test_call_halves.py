"""Halves of calls in the index: found by a number, compared by text, and never all with all."""

import uuid
from collections.abc import Callable, Sequence

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.index.call_halves import keys_of, storable, waiting_halves
from lakerunner.index.database import Connection, Database
from lakerunner.index.derivation import Derivation, apply_derivation
from lakerunner.index.migrate import known_migrations, migrate
from lakerunner.model.errors import Unavailable
from lakerunner.model.half_call import HALF

#: So many that comparing all with all takes minutes, and looking each up a fraction of a second.
COUNT = 20_000
ORG = uuid.uuid4()


def halves(pairs: Sequence[str], *, is_client: bool, service: str = "shop") -> pa.Table:
    count = len(pairs)
    same = {"service": service, "start_ns": -1, "duration_ns": 2**62, "failed": True, "messaging": False, "peer": ""}
    columns = {name: [value] * count for name, value in same.items()}
    own = "" if is_client else "server"
    return pa.table({"pair": pairs, "own": [own] * count, "is_client": [is_client] * count, **columns}, schema=HALF)


def many(*, is_client: bool) -> pa.Table:
    return halves([f"trace-{number}" for number in range(COUNT)], is_client=is_client)


def left(tx: Connection, org_id: uuid.UUID) -> None:
    apply_derivation(tx, org_id, Derivation(left=many(is_client=True)))


def take(tx: Connection, org_id: uuid.UUID) -> None:
    apply_derivation(tx, org_id, Derivation(taken=waiting_halves(tx, org_id, many(is_client=False))))


STATEMENTS: dict[str, Callable[[Connection, uuid.UUID], object]] = {
    "find": lambda tx, org_id: waiting_halves(tx, org_id, many(is_client=False)),
    "take": take,
    "leave again": left,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_halves_of_an_org_that_statistics_do_not_know_are_looked_up_by_their_key(database: Database, name: str) -> None:
    with database.transaction() as tx:
        left(tx, uuid.uuid4())
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("ANALYZE service_graph_half")
    new_org = uuid.uuid4()
    with database.transaction() as tx:
        left(tx, new_org)
    with database.transaction() as tx:
        tx.execute("SET LOCAL statement_timeout = '8s'")
        STATEMENTS[name](tx, new_org)
        row = tx.execute(
            "SELECT seq_scan, current_setting('enable_seqscan') AS may_scan FROM pg_stat_xact_user_tables"
            " WHERE relname = 'service_graph_half'"
        ).fetchone()
    assert row is not None and row["seq_scan"] == 0
    assert row["may_scan"] == "on", "other statements of the transaction are planned as ever"


def test_statements_are_planned_for_their_keys_however_often_they_are_used(database: Database) -> None:
    """A prepared statement does not know its arrays, and would compare every row with all of them."""
    with database.transaction() as tx:
        for number in range(12):
            apply_derivation(tx, ORG, Derivation(left=halves([f"trace-{number}"], is_client=True)))
            found = waiting_halves(tx, ORG, halves([f"trace-{number}"], is_client=False))
            apply_derivation(tx, ORG, Derivation(taken=found))
        rows = tx.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert not [row["statement"] for row in rows if "h.key" in row["statement"]]


def test_halves_come_back_as_they_were_left(database: Database) -> None:
    service = 'tab\there, "quotes", \\N, line\nbreak, ünïcode ✓'
    clients = halves(["a" * 48, "trace", "ÄÖ" * 40, ""], is_client=True, service=service)
    with database.transaction() as tx:
        apply_derivation(tx, ORG, Derivation(left=clients))
        apply_derivation(tx, ORG, Derivation(left=clients))  # The same spans were sent again.
        found = waiting_halves(tx, ORG, halves(clients.column("pair").to_pylist(), is_client=False))
        assert waiting_halves(tx, uuid.uuid4(), halves(["trace"], is_client=False)).num_rows == 0, "of another org"
        assert waiting_halves(tx, ORG, clients).num_rows == 0, "a client is no other side of a client"
    found = found.sort_by("pair")
    assert found.select(HALF.names).to_pylist() == clients.sort_by("pair").to_pylist()
    assert len(set(found.column("id").to_pylist())) == 4


def test_what_no_text_of_the_index_can_have_is_replaced() -> None:
    odd = halves(["a\x00b", "plain", "c\x1fd"], is_client=True, service="x\x1fy")
    found = storable(odd)
    assert found.column("pair").to_pylist() == ["a b", "plain", "c d"]
    assert found.column("service").to_pylist() == ["x y"] * 3
    plain = halves(["plain"], is_client=True)
    assert storable(plain) is plain


def test_different_pairs_with_one_key_stay_apart(database: Database) -> None:
    # Two words changed places: the XOR is the same.
    pairs = ["1111111122222222" + "0" * 32, "2222222211111111" + "0" * 32]
    assert len(set(keys_of(halves(pairs, is_client=True)).tolist())) == 1
    with database.transaction() as tx:
        apply_derivation(tx, ORG, Derivation(left=halves(pairs[:1], is_client=True)))
        assert waiting_halves(tx, ORG, halves(pairs[1:], is_client=False)).num_rows == 0
        apply_derivation(tx, ORG, Derivation(left=halves(pairs[1:], is_client=False)))
        found = waiting_halves(tx, ORG, halves(pairs, is_client=False))
        assert found.column("pair").to_pylist() == pairs[:1]
        apply_derivation(tx, ORG, Derivation(taken=found))
        row = tx.execute("SELECT array_agg(pair) AS pairs FROM service_graph_half").fetchone()
    assert row is not None and row["pairs"] == pairs[1:]


def test_an_item_that_was_overtaken_comes_again(database: Database) -> None:
    client, server = halves(["trace"], is_client=True), halves(["trace"], is_client=False)
    with database.transaction() as tx:
        apply_derivation(tx, ORG, Derivation(left=client))
    with pytest.raises(Unavailable, match="came meanwhile"), database.transaction() as tx:
        apply_derivation(tx, ORG, Derivation(left=server))
    with database.transaction() as tx:
        found = waiting_halves(tx, ORG, server)
        apply_derivation(tx, ORG, Derivation(taken=found))
        # Somebody left the same client again, in a row of its own.
        apply_derivation(tx, ORG, Derivation(left=client))
    with pytest.raises(Unavailable, match="paired the same calls"), database.transaction() as tx:
        apply_derivation(tx, ORG, Derivation(taken=found))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60), max_size=6))
def test_keys_follow_from_the_bytes(pairs: list[str]) -> None:
    expected = []
    for pair in pairs:
        content, key = pair.encode()[:48].ljust(48, b"\0"), 0
        for word in range(0, 48, 8):
            key ^= int.from_bytes(content[word : word + 8], "big")
        expected.append(key - (1 << 64 if key >> 63 else 0))
    assert keys_of(halves(pairs, is_client=True)).tolist() == expected


def test_halves_that_wait_while_the_schema_is_migrated_are_found(empty_database: Database) -> None:
    by_key = next(each for each in known_migrations() if each.name == "keys_of_halves")
    migrate(empty_database, known_migrations()[: by_key.version - 1])
    pairs = ["0123456789abcdef" * 3, "short", "ü" * 60]

    def left_by_the_release_before(names: Sequence[str]) -> None:
        with empty_database.transaction() as tx:
            for pair in names:
                tx.execute(
                    "INSERT INTO service_graph_half (org_id, pair, own, is_client, service, start_ns, duration_ns,"
                    " failed, messaging) VALUES (%s, %s, '', true, 'shop', 1, 1, false, false)",
                    [ORG, pair],
                )

    left_by_the_release_before(pairs)
    migrate(empty_database)
    with empty_database.transaction() as tx:
        rows = tx.execute("SELECT pair, key FROM service_graph_half").fetchall()
    stored = {row["pair"]: row["key"] for row in rows}
    assert [stored[pair] for pair in pairs] == keys_of(halves(pairs, is_client=True)).tolist()
    # Its roles run on for a while, and give no key.
    left_by_the_release_before(["later"])
    with empty_database.transaction() as tx:
        found = waiting_halves(tx, ORG, halves([*pairs, "later"], is_client=False))
        assert sorted(found.column("pair").to_pylist()) == sorted([*pairs, "later"])
        apply_derivation(tx, ORG, Derivation(taken=found))
        assert waiting_halves(tx, ORG, halves([*pairs, "later"], is_client=False)).num_rows == 0
