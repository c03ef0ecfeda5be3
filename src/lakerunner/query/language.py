"""What a query language is: text compiled once to a plan, whose parts are evaluated where the segments are.

`compile` is the only place that sees the text. A plan names the leaves that the query reads, says how the query may be
cut, and encodes any part of itself as a payload that only its own language can decode. Everything between the
language and its data (planner, fan-out, workers, HTTP) handles plans and payloads without knowing the language.

A language is a folder with a module that has a `LANGUAGE`; `languages.py` lists them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Bug
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.answer_rows import answer_schema
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, Predicate
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows, Shape
from lakerunner.query.series import block_arrow
from lakerunner.query.series.batch import SeriesBatch, SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.results import QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.runtime.kernels import Share

T = TypeVar("T")
#: Raises when the answer is no longer wanted.
Check = Callable[[], None]

#: Groups of fewer steps cost more in round trips than they gain.
_LEAST_STEPS = 30
#: A group reads beyond its own steps by its reach. It is at least this many times wider, so that little is read twice.
_REACHES = 4


@runtime_checkable
class RowSource(Protocol):
    """Rows of logs or spans."""

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that match, in the order and up to the limit of the scan. Ordered batches have one schema.

        `shape` makes the batches of an ordered scan: it may read the columns that it wants, and may leave rows out.
        """
        ...

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T], form: KeptForm[T] | None = None) -> Iterator[T]:
        """What `make` makes of the rows of each row group that match, in any order. Several threads call it at once.

        With `form`, the source may keep that, and give what it has kept.
        """
        ...

    def row_schema(self, scan: RowScan) -> pa.Schema:
        """The columns that the rows will have."""
        ...


class Source(SeriesSource, RowSource, Protocol):
    """What a language reads from. It knows the org and the segments; the language knows neither."""


class NoSegments:
    """A source that has nothing: no segment is left to read."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        return SeriesBatch.empty()

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        return iter(())

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T], form: KeptForm[T] | None = None) -> Iterator[T]:
        return iter(())

    def row_schema(self, scan: RowScan) -> pa.Schema:
        return answer_schema([], scan)


@dataclass(frozen=True, slots=True)
class QueryOptions(EngineOptions):
    """What may differ between two queries with the same text and times."""

    #: Which signal, for a language that does not say it itself.
    signal: str = ""
    #: Rows of the answer; None: all.
    limit: int | None = None
    newest_first: bool = True
    #: Columns of the answer; None: all.
    columns: tuple[str, ...] | None = None
    #: How far beyond the asked time the spans of a trace are looked for.
    trace_reach_s: float = 1_800.0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The value of some steps: only series that have a value, in any order."""

    block: Block
    notes: Annotations
    #: Samples read and cells computed.
    samples: int


class Plan(abc.ABC):
    """A compiled query."""

    #: The name of its language, as `languages.py` has it.
    language: ClassVar[str]
    #: The query in its canonical form: two texts with the same meaning have the same one.
    canonical: str
    times: QueryTimes
    options: EngineOptions
    #: Everything that the query reads. The time it looks at is their extent.
    leaves: tuple[Leaf, ...]


class StepPlan(Plan):
    """A query with a value at every step, which may be evaluated in groups of steps, each anywhere."""

    #: Whether a worker may evaluate parts of it. False where what is read depends on what was found.
    pushable: bool = True
    #: Whether each step is independent of the others. False: the steps must stay together.
    splittable: bool = True
    #: Whether it reads rows, not samples. Rows are read only where the segments are: all of its steps are pushed down.
    reads_rows: bool = False

    @abc.abstractmethod
    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        """What evaluating some of the steps reads."""

    @abc.abstractmethod
    def payload(self, steps: Ints, max_samples: int) -> bytes:
        """Some of the steps, encoded for a worker."""

    @abc.abstractmethod
    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        """The value of some of the steps, computed here."""

    @abc.abstractmethod
    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        """The annotations that a worker sent."""

    def counts(self) -> Sequence[StepPlan]:
        """Plans of counts that add up exactly over disjoint rows, and from whose sums `of_sums` finds the value.

        Empty if there are none: then one worker reads all rows of a group of steps.
        """
        return ()

    def of_sums(self, values: Sequence[Sequence[Block]], steps: Ints, check: Check, max_samples: int) -> Evaluated:
        """The value of some steps, from what each of the `counts` is over disjoint parts of the rows."""
        raise Bug(f"cannot add up the parts of a {type(self).__name__}: they are no counts")

    def groups(self, most: int, from_ms: int | None = None) -> list[Ints]:
        """The steps in at most `most` groups, those before `from_ms` left out where the steps are independent."""
        steps = self.times.steps()
        if not self.splittable:
            return [steps]
        if from_ms is not None:
            steps = steps[steps >= from_ms]
        if len(steps) <= _LEAST_STEPS or most == 1:
            return [steps] if len(steps) else []
        width = max(_LEAST_STEPS, -(-_REACHES * self.reach_ms() // self.times.step_ms), -(-len(steps) // most))
        return [steps[start : start + width] for start in range(0, len(steps), width)]

    def reach_ms(self) -> int:
        """How far before or after a step its samples lie.

        Found from the leaves of the first and the last step. Leaves that do not move, as those of `@`, do not count.
        """
        first, last = self.times.start_ms, int(self.times.steps()[-1])
        fixed = set(self.leaves_at(np.array([first], dtype=np.int64)))
        moving = [leaf for leaf in self.leaves_at(np.array([last], dtype=np.int64)) if leaf not in fixed]
        return max((max(last - leaf.start_ms, leaf.end_ms - last) for leaf in moving), default=0)


class ValuePlan(Plan):
    """A query with one value that is no vector over steps: a scalar, a text, or samples as they are stored."""

    @abc.abstractmethod
    def value(self, source: SeriesSource, check: Check) -> QueryResult: ...


class RowPlan(Plan):
    """A query whose answer is rows in order of time."""

    #: What is read. The answer's order, limit and columns are those of the scan.
    scan: RowScan
    #: The columns of the answer, if they are known before anything is read.
    schema: pa.Schema | None = None
    #: Whether a row of the answer is made of rows that lie in several segments: one worker reads them all.
    together: bool = False
    #: Whether the answer follows from the canonical text, the scan and the stored rows, whenever it is asked for.
    repeatable: bool = False

    @property
    def condition(self) -> Predicate:
        """What all stored rows satisfy that the answer is made of. Segments without such rows need not be asked."""
        return EVERYTHING if self.together else self.scan.predicate

    @abc.abstractmethod
    def payload(self, limit: int | None) -> bytes:
        """The query, encoded for a worker. `limit` is how many rows are still wanted."""

    @abc.abstractmethod
    def schema_payload(self) -> bytes:
        """What a worker evaluates to one empty batch, which has the columns of the answer."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What evaluating a payload gives: batches, and after the last of them a note."""

    batches: Iterator[pa.RecordBatch]
    note: Callable[[], dict[str, Any]]


class Language(Protocol):
    name: str

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        """The plan of a query; a ParseError that points at the token where the text is none."""
        ...

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        """On a worker: the value of a payload, over the segments that the source was given."""
        ...

    def kernels(self) -> Sequence[Share]:
        """The compiled kernels, which are loaded before the first client waits for them."""
        ...


def step_stream(found: Evaluated) -> Stream:
    """The value of some steps as a stream: what the `evaluate` of a language over steps returns."""
    note = {"samples": found.samples, "notes": found.notes.to_json()}
    return Stream(block_arrow.to_batches(found.block), lambda: note)


def received_steps(
    plan: StepPlan, steps: Ints, batches: Sequence[pa.RecordBatch], note: Mapping[str, Any]
) -> Evaluated:
    """What `step_stream` was made of, on the other side."""
    block = block_arrow.from_batches(batches, len(steps))
    return Evaluated(block, plan.notes_of(note["notes"]), int(note["samples"]))
