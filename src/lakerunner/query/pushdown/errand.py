"""What a worker is sent to do: evaluate a part of a query over given segments. As JSON it is a Flight ticket."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson

from lakerunner.model.errors import BadInput
from lakerunner.query.fanout.request import SegmentObjects, check_keys
from lakerunner.query.promql.part import Part
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions

KIND = "evaluate"


@dataclass(frozen=True, slots=True)
class Read:
    """One select of the part, and which of the errand's segments hold something of it. Both ends are included."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Errand:
    org_id: uuid.UUID
    query_id: uuid.UUID
    part: Part
    segments: tuple[SegmentObjects, ...]
    reads: tuple[Read, ...]
    #: In seconds of the Unix epoch.
    deadline_s: float
    #: Bytes of samples that may be held at a time.
    max_bytes: int

    def to_ticket(self, token: str) -> bytes:
        part = self.part
        return orjson.dumps(
            {
                "kind": KIND,
                "token": token,
                "org": str(self.org_id),
                "query": str(self.query_id),
                "text": part.text,
                "range": [part.query.start_ms, part.query.end_ms, part.query.step_ms],
                "times": part.times,
                "options": asdict(part.options),
                "segments": [[str(one.segment_id), list(one.keys)] for one in self.segments],
                "reads": [
                    [
                        [[m.name, m.kind.value, m.value] for m in read.matchers],
                        read.start_ms,
                        read.end_ms,
                        read.segments,
                    ]
                    for read in self.reads
                ],
                "deadline_s": self.deadline_s,
                "max_bytes": self.max_bytes,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )


def _plain(matchers: Sequence[Matcher]) -> list[list[str]]:
    return [[matcher.name, matcher.kind.value, matcher.value] for matcher in matchers]


def read_errand(document: Mapping[str, Any]) -> Errand:
    """The errand of a ticket. Its keys are all of its org, or it is refused."""
    try:
        start_ms, end_ms, step_ms = map(int, document["range"])
        errand = Errand(
            org_id=uuid.UUID(document["org"]),
            query_id=uuid.UUID(document["query"]),
            part=Part(
                str(document["text"]),
                QueryTimes(start_ms, end_ms, step_ms),
                np.array(document["times"], dtype=np.int64),
                EngineOptions(**document["options"]),
            ),
            segments=tuple(SegmentObjects(uuid.UUID(one), tuple(keys)) for one, keys in document["segments"]),
            reads=tuple(
                Read(
                    tuple(Matcher(name, MatchKind(kind), value) for name, kind, value in matchers),
                    int(from_ms),
                    int(to_ms),
                    tuple(map(int, segments)),
                )
                for matchers, from_ms, to_ms, segments in document["reads"]
            ),
            deadline_s=float(document["deadline_s"]),
            max_bytes=int(document["max_bytes"]),
        )
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read a ticket: {reason!r}") from None
    check_keys(errand.org_id, errand.segments)
    return errand
