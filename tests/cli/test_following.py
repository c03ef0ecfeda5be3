"""Following a tail beyond its end: every entry is shown once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pytest

from lakerunner.cli import following
from lakerunner.cli.following import follow
from lakerunner.model.errors import LimitHit, Unavailable

MS = 1_000_000
Frame = tuple[str, Any]


def entry(at_ms: int, line: str = "x") -> Frame:
    return "result", {"timestampNs": str(at_ms * MS), "message": line, "tags": {"a": "b"}}


class Tails:
    """Tails that end one after another. A tail that is an error is not even begun."""

    def __init__(self, *tails: list[Frame] | Exception) -> None:
        self.tails = list(tails)
        self.asked: list[Mapping[str, object]] = []

    def __call__(self, body: Mapping[str, object]) -> Iterator[Frame]:
        self.asked.append(body)
        tail = self.tails.pop(0)
        if isinstance(tail, Exception):
            raise tail
        return iter(tail)


def lines(tails: Tails, count: int) -> list[str]:
    return [each.line for each in islice(follow(tails, {"q": "{}", "s": 7, "limit": 1}, pause_s=0), count)]


def test_a_lost_connection_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    # The same entry twice is two entries, before and after.
    first = [entry(50_000, "one"), entry(50_001, "two"), entry(50_001, "two")]
    tails = Tails(
        first,
        Unavailable("cannot reach the API"),
        Unavailable("cannot reach the API"),
        [*first, entry(50_001, "two"), entry(50_002, "three")],
        [("done", {})],
    )
    assert lines(tails, 9) == ["one", "two", "two", "two", "three"]
    assert [body["s"] for body in tails.asked] == [7, *[50_000] * 4]
    assert capsys.readouterr().err.count("as soon as the API answers") == 2


def test_a_tail_goes_on_a_little_before_its_newest_entry() -> None:
    tails = Tails([entry(50_000), entry(90_000)], [("done", {})])
    assert len(lines(tails, 3)) == 2
    assert [body["s"] for body in tails.asked] == [7, 60_000]


def test_a_tail_that_is_too_old_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ("error", {"code": "limit_hit", "message": "the tail ended", "hint": None, "where": None})
    with pytest.raises(LimitHit, match="the tail ended"):
        lines(Tails([entry(1, "one"), old]), 2)
    monkeypatch.setattr(following, "_SOON_S", 0.0)
    assert lines(Tails([entry(1, "one"), old, ("done", {})], [entry(1, "one"), entry(2, "two")]), 2) == ["one", "two"]


def test_what_never_began_is_an_error() -> None:
    with pytest.raises(Unavailable):
        lines(Tails(Unavailable("cannot reach the API")), 1)
