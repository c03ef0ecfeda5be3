"""What a scan of one segment gave: its samples or rows, what it cost, or why it failed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakerunner.query.fanout.request import ScanRequest
from lakerunner.query.scan.samples.runs import Samples

if TYPE_CHECKING:
    from lakerunner.query.pushdown.done import Done
    from lakerunner.query.pushdown.errand import Errand

#: Raises when the answer is no longer wanted.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What answering took."""

    rows: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    fetch_s: float = 0.0
    scan_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """Either `samples` (in parts) or `table`, by the kind of the request; or `error`, and then neither."""

    segment_id: uuid.UUID
    samples: Sequence[Samples] = ()
    table: pa.Table | None = None
    cost: Cost = field(default_factory=Cost)
    error: str | None = None


class Workers(Protocol):
    """Those who scan. Every segment of the request is answered once, in any order; failures are answers too."""

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]: ...

    def evaluate(self, errand: Errand, check: Check) -> Done | None:
        """A part of a query, evaluated by those who have its segments. None: not now, or they have no such place."""
        ...

    def close(self) -> None: ...
