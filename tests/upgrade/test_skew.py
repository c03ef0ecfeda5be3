"""Roles of two releases understand each other: what the release before sends is read, and what this one sends is known.

A change of what is sent shows here. If it only adds a field that a reader may ignore, record again
(`python -m tests.upgrade.recording`); if roles of the release before could not read it, raise the version first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakerunner.bus.messages import decode, encode
from lakerunner.query.fanout.errors import Draining
from lakerunner.query.fanout.protocol import PROTOCOL, EvaluateRequest, read_request
from tests.components.postgres import EXPANDED_VARIABLE
from tests.upgrade.recording import MESSAGES, RECORDED, requests, ticket_of

ROOT = Path(__file__).parents[2]
_MESSAGES: dict[str, Any] = json.loads((RECORDED / "messages.json").read_text())
_TICKETS: dict[str, Any] = json.loads((RECORDED / "tickets.json").read_text())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_recorded_messages_are_read(message: Any) -> None:
    recorded = _MESSAGES[type(message).__name__]
    assert decode(type(message), json.dumps(recorded).encode()) == message
    later = {**recorded, "added_later": {"a": [1]}}
    assert decode(type(message), json.dumps(later).encode()) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_are_sent_as_the_release_before_reads_them(message: Any) -> None:
    sent, recorded = json.loads(encode(message)), _MESSAGES[type(message).__name__]
    # It may have more, and must have what was there.
    assert {name: sent.get(name) for name in recorded} == recorded


def _wire(ticket: dict[str, Any]) -> dict[str, Any]:
    wire = dict(ticket)
    if "payload" in wire:
        wire["payload"] = json.dumps(wire["payload"])
    return wire


@pytest.mark.parametrize("name", _TICKETS)
def test_recorded_requests_are_read(name: str) -> None:
    now = dict(requests())[name]
    read = read_request({**_wire(_TICKETS[name]), "added_later": [1]})
    assert (read.org_id, read.segments, read.max_bytes) == (now.org_id, now.segments, now.max_bytes)
    if isinstance(read, EvaluateRequest) and isinstance(now, EvaluateRequest):
        assert read.fragment.reads == now.fragment.reads
        assert json.loads(read.fragment.payload) == json.loads(now.fragment.payload)


def test_requests_are_sent_as_recorded_or_with_another_protocol() -> None:
    sent = {name: ticket_of(request) for name, request in requests()}
    if _TICKETS["scan"]["v"] == PROTOCOL:
        assert sent == _TICKETS, "record again, or raise PROTOCOL: see the head of this file"
    assert set(sent) == set(_TICKETS)


def test_a_worker_leaves_requests_of_another_protocol_to_others() -> None:
    # As of a worker that is going to stop: the API asks the next one, and its answer misses nothing.
    with pytest.raises(Draining, match="another release"):
        read_request({**_wire(_TICKETS["scan"]), "v": PROTOCOL + 1})


@pytest.mark.slow
def test_statements_work_over_the_schema_of_a_later_release() -> None:
    """Every table has more columns. Statements that name theirs do not notice."""
    files = [f"tests/index/test_{name}.py" for name in ("ledger", "commit", "lookup", "upkeep")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", *files]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    env[EXPANDED_VARIABLE] = "1"
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
