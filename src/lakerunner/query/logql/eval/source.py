"""Where metric queries get their entries from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.entries import Entries, Ints
from lakerunner.query.logql.eval.counted import CountedEntries
from lakerunner.query.logql.eval.series_times import SeriesTimes


class EntrySource(Protocol):
    def entries(
        self,
        selector: LogSelector,
        start_ns: int,
        end_ns: int,
        names: frozenset[str] | None,
        need_lines: bool,
        by: frozenset[str] | None = None,
        edges: Ints | None = None,
        number: str | None = None,
    ) -> Iterator[Entries | SeriesTimes | CountedEntries]:
        """The entries in [start_ns, end_ns) that pass the selector and its stages, in any order and in pieces.

        `names` are the labels that the caller reads; None: all of them. What the stages read comes on top of it. The
        labels that say what went wrong with an entry are always there. Without `need_lines`, lines may be empty.

        With `by`, entries are only counted, by these labels and by time. Some pieces may then be `SeriesTimes`, and
        those may have times outside the range. With `edges` too, some may be `CountedEntries`.

        With `number`, a label that nobody reads but as a number, its values may be numbers instead of texts.

        With `edges`, the caller only asks in which interval (edges[j], edges[j + 1]] an entry lies. Its time may be
        another one of the same interval then.
        """
        ...
