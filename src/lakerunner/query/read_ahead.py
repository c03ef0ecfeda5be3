"""Reading for later time groups while an earlier one is evaluated.

What a group will select is learnt from the groups before it: the same selectors, as far from its first and last step.
A guess that proves wrong costs one read; its selector is then no longer guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from lakerunner.query.promql.histogram import Ints
from lakerunner.query.promql.matchers import Matcher
from lakerunner.query.promql.source import SelectHints, SeriesBatch, SeriesSource

#: Groups that are read beyond the one being evaluated: enough to hide the reading, few enough to hold in memory.
AHEAD = 2


@dataclass(frozen=True, slots=True)
class _Select:
    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    hints: SelectHints


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A select relative to the first and the last step of its group."""

    matchers: tuple[Matcher, ...]
    before_ms: int
    after_ms: int
    hints: SelectHints

    @classmethod
    def of(cls, select: _Select, times: Ints) -> _Pattern:
        return cls(select.matchers, int(times[0]) - select.start_ms, select.end_ms - int(times[-1]), select.hints)

    def at(self, times: Ints) -> _Select:
        return _Select(self.matchers, int(times[0]) - self.before_ms, int(times[-1]) + self.after_ms, self.hints)


class ReadAhead:
    """Implements `SeriesSource` over another, for the evaluation of groups one after the other."""

    def __init__(self, source: SeriesSource, groups: Sequence[Ints], ahead: int = AHEAD) -> None:
        self._source = source
        self._groups = groups
        self._ahead = ahead
        self._pool = ThreadPoolExecutor(ahead, thread_name_prefix="read-ahead") if len(groups) > 1 else None
        self._current = 0
        self._guessed_to = 0
        self._learnt: set[_Pattern] = set()
        self._wrong: set[_Pattern] = set()
        self._guesses: dict[_Select, tuple[_Pattern, Future[SeriesBatch]]] = {}
        self.hits = 0

    def ended(self, number: int) -> None:
        """That group is evaluated: reading for those after it may begin, while whoever takes it is busy with it."""
        self._forget(int(self._groups[number][-1]))
        self._current = number + 1
        self._guess()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, hints: SelectHints) -> SeriesBatch:
        select = _Select(tuple(matchers), start_ms, end_ms, hints)
        if self._current == 0:
            self._learnt.add(_Pattern.of(select, self._groups[0]))
        guess = self._guesses.pop(select, None)
        if guess is None:
            return self._source.select(matchers, start_ms, end_ms, hints)
        self.hits += 1
        return guess[1].result()

    def close(self) -> None:
        """Stop reading; what is being read is left to end by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _guess(self) -> None:
        if self._pool is None:
            return
        last = min(self._current + self._ahead, len(self._groups)) - 1
        for number in range(max(self._guessed_to + 1, self._current), last + 1):
            for pattern in self._learnt - self._wrong:
                select = pattern.at(self._groups[number])
                if select not in self._guesses:
                    read = self._pool.submit(
                        self._source.select, select.matchers, select.start_ms, select.end_ms, select.hints
                    )
                    self._guesses[select] = pattern, read
            self._guessed_to = number

    def _forget(self, done_to: int) -> None:
        """Drop what was read for groups up to that time and not taken, and guess that no more."""
        for select, (pattern, read) in list(self._guesses.items()):
            if select.end_ms - pattern.after_ms <= done_to:
                self._wrong.add(pattern)
                read.cancel()
                del self._guesses[select]
