"""What was measured of a case, as figures beside those of the peers, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bench.log_scan.cases import Case
from bench.log_scan.peers import FLOOR
from bench.log_scan.times import Times
from bench.served.report import Figure

#: At most so much of what a peer takes. DuckDB is shown, and not a target.
_MOST_OF = {"chDB": 1.0, FLOOR: 2.0}
#: Of fewer rows, those segments that have the needle are too large a share for a target of bytes.
_MANY_ROWS = 20_000_000
#: A needle that filters exclude from most row groups, asked again.
_MOST_NEEDLE_MS = 50
#: Times of the same work differ by so much from run to run.
_NOISE = 1.1
#: Of a case that stays flat: the walk over the list of segments grows, and little else.
_MOST_FLAT = 1.5

_figure = partial(Figure, "log_scan")


@dataclass(frozen=True, slots=True)
class Measured:
    case: Case
    cold: Times
    hot: Times
    bytes_percent: float
    peers: dict[str, Times]

    def ours(self) -> Iterator[tuple[str, Times]]:
        yield "cold", self.cold
        yield "hot", self.hot


def figures(rows: int, measured: Measured) -> Iterator[Figure]:
    case = measured.case
    for state, times in measured.ours():
        for kind, value in times.named():
            name = f"{case.name}, {_short(rows)}, {state} {kind}"
            for peer, theirs in measured.peers.items():
                yield _figure(name, value, "ms", peer, dict(theirs.named())[kind], _most_of(case, peer))
    share = 100 * case.most_bytes if case.most_bytes is not None and rows >= _MANY_ROWS else None
    yield _figure(f"{case.name}, {_short(rows)}, bytes", measured.bytes_percent, "%", most=share)
    if case.most_bytes is not None:
        yield _figure(f"{case.name}, {_short(rows)}, hot", measured.hot.wall_ms, "ms", most=_MOST_NEEDLE_MS)


def growth(few_rows: int, few: Measured, many_rows: int, many: Measured) -> Iterator[Figure]:
    """CPU time over many rows, beside that over few rows times the growth of the rows."""
    expected = 1.0 if many.case.is_flat else many_rows / few_rows
    most = _MOST_FLAT if many.case.is_flat else _NOISE
    peer = f"{expected:g} x {_short(few_rows)}"
    for (state, of_few), (_, of_many) in zip(few.ours(), many.ours(), strict=True):
        name = f"{many.case.name}, {_short(many_rows)}, {state} growth"
        yield _figure(name, of_many.cpu_ms, "ms", peer, expected * of_few.cpu_ms, most)


def _most_of(case: Case, peer: str) -> float | None:
    """The floor is one of scans: it looks for a text, or just reads the columns."""
    return None if peer == FLOOR and not case.has_floor else _MOST_OF.get(peer)


def _short(rows: int) -> str:
    return f"{rows // 1_000_000}M" if rows % 1_000_000 == 0 else f"{rows:,}"
