"""A slice of `make apifuzz`: requests made from the served document never break the API nor its word."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.components.postgres import PostgresServer
from tests.serve.apifuzz import fuzz, served_lake

CALLS = int(os.environ.get("APIFUZZ_CALLS", "400"))


@pytest.mark.slow
@pytest.mark.timeout(60 + CALLS)
def test_no_request_breaks_it(postgres_server: PostgresServer) -> None:
    seed = random.randrange(2**32)
    with (
        tempfile.TemporaryDirectory(prefix="apifuzz-") as folder,
        served_lake(Path(folder), postgres_server.new_database()) as (roles, secret),
    ):
        tally = fuzz(roles.url, secret, CALLS, seed)
    assert not tally.failures, f"seed {seed}: " + "\n\n".join(tally.failures[:5])
    assert tally.server_errors == 0
    assert tally.calls >= 0.8 * CALLS
    # A document or a grammar that only makes requests which are refused tests nothing.
    assert tally.statuses[200] > 0.35 * tally.calls
