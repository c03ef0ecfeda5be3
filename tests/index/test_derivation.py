"""Halves of calls in the index: the cost of a statement grows with its halves, and not with their square."""

import uuid
from collections.abc import Callable

import psycopg
import pyarrow as pa
import pytest

from lakerunner.index.database import Connection, Database
from lakerunner.index.derivation import Derivation, apply_derivation, waiting_halves
from lakerunner.model.half_call import HALF

#: So many that comparing all with all takes minutes, and looking each up a fraction of a second.
COUNT = 20_000


def halves(*, is_client: bool) -> pa.Table:
    pairs = [f"trace-{number}" for number in range(COUNT)]
    same = {"service": "shop", "start_ns": 1, "duration_ns": 1, "failed": False, "messaging": False, "peer": ""}
    columns = {name: [value] * COUNT for name, value in same.items()}
    own = "" if is_client else "server"
    return pa.table({"pair": pairs, "own": [own] * COUNT, "is_client": [is_client] * COUNT, **columns}, schema=HALF)


def left(tx: Connection, org_id: uuid.UUID) -> None:
    apply_derivation(tx, org_id, Derivation(left=halves(is_client=True)))


STATEMENTS: dict[str, Callable[[Connection, uuid.UUID], object]] = {
    "find": lambda tx, org_id: waiting_halves(tx, org_id, halves(is_client=False)),
    "take": lambda tx, org_id: apply_derivation(tx, org_id, Derivation(taken=halves(is_client=True))),
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
