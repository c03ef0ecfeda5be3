"""Continues a stream of rows on another worker after the rows that were delivered already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakerunner.model.errors import Unavailable
from lakerunner.query.fanout.answer import EvaluateAnswer


def resumed(
    parts: Iterable[pa.RecordBatch | EvaluateAnswer], delivered: int
) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
    """The parts without the first `delivered` rows. All workers return rows in the same order."""
    to_skip = delivered
    for part in parts:
        if isinstance(part, EvaluateAnswer):
            if delivered and part.note["tally"]["failed"]:
                # Rows of the failed segment may be among those delivered, so the skipped rows may be other ones.
                raise Unavailable("cannot continue the rows: the next worker cannot read a segment")
            yield part
        elif to_skip == 0 or to_skip < part.num_rows:
            yield part.slice(to_skip)
            to_skip = 0
        else:
            to_skip -= part.num_rows
