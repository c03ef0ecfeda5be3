"""Totals of requests by org: every process adds its counts, and none is lost while the index is down."""

from __future__ import annotations

import uuid

import pytest

from lakerunner.index.database import Database
from lakerunner.index.org_requests import RequestLedger, store_counts
from lakerunner.index.tally import cost_by_org
from lakerunner.model.errors import Unavailable
from lakerunner.store.requests import NOBODY, add_requests, take_requests

ORG = str(uuid.UUID(int=7))


def test_counts_add_up(database: Database) -> None:
    take_requests()
    for _ in range(2):
        add_requests([(ORG, "get", 2, 10), (ORG, "put", 1, 5), (str(NOBODY), "list", 3, 0)])
        assert store_counts(database)
    assert not store_counts(database), "nothing was counted since"
    add_requests([(ORG, "get", 1, 1)])
    ledger = RequestLedger(database)
    ledger.start()
    ledger.end()
    with database.transaction() as tx:
        tx.execute(
            "INSERT INTO tally (subject, org_id, signal, state, count, row_count, size_bytes) VALUES"
            " ('segment', %s, 'logs', 'live', 1, 1, 9)",
            [ORG],
        )
        ours, nobody = cost_by_org(tx, 10)
    assert (ours.org_id, ours.bytes, ours.requests, ours.request_bytes) == (
        uuid.UUID(ORG), 9, {"get": 5, "put": 2}, {"get": 21, "put": 10},
    )  # fmt: skip
    assert (nobody.org_id, nobody.requests) == (NOBODY, {"list": 6})


def test_what_cannot_be_stored_is_kept() -> None:
    take_requests()
    add_requests([(ORG, "get", 2, 10)])
    down = Database("postgresql://nobody@127.0.0.1:1/nothing", connect_timeout_s=0.2, fail_fast=True)
    with pytest.raises(Unavailable):
        store_counts(down)
    down.close()
    assert [tuple(each) for each in take_requests()] == [(ORG, "get", 2, 10)]
