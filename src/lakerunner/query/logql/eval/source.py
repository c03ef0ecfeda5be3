"""Where metric queries get their entries from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.entries import Entries, Ints
from lakerunner.query.logql.eval.counted import CountedEntries
from lakerunner.query.logql.eval.series_times import SeriesTimes

#: What a source yields. `EntryRequest` says when it may be something other than entries.
Piece: TypeAlias = Entries | SeriesTimes | CountedEntries


@dataclass(frozen=True, slots=True, eq=False)
class EntryRequest:
    """The entries in [start_ns, end_ns) that pass a selector and its stages, and what the caller reads of them."""

    selector: LogSelector
    start_ns: int
    end_ns: int
    #: The labels that the caller reads; None: all of them. What the stages read comes on top, and the labels that say
    #: what went wrong with an entry are always there.
    names: frozenset[str] | None
    #: Whether the caller reads lines. If not, they may be empty.
    need_lines: bool
    #: Entries are only counted, by these labels and by time. Some pieces may then be `SeriesTimes`, and those may have
    #: times outside the range. With `edges` too, some may be `CountedEntries`.
    by: frozenset[str] | None = None
    #: The caller only asks in which interval (edges[j], edges[j + 1]] an entry lies. Its time may be another one of the
    #: same interval then.
    edges: Ints | None = None
    #: A label that the caller reads as a number only: its values may be numbers instead of texts.
    number: str | None = None


class EntrySource(Protocol):
    def entries(self, request: EntryRequest) -> Iterator[Piece]:
        """The requested entries, in any order and in pieces."""
        ...
