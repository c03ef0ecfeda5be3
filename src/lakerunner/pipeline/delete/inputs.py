"""The inputs of delete: live segments that a running deletion concerns, each as often as deletions concern it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakerunner.bus.announce import segments_made
from lakerunner.index import overdue
from lakerunner.index.database import Connection
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import Overdue, Position
from lakerunner.model.signal import Signal
from lakerunner.pipeline.inputs import Segments


class DeletionSegments(Segments):
    __slots__ = ()

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        page = overdue.pending_deletions(tx, stage, [signal.name for signal in signals], due, after)
        return segments_made(page.found, [stage]), page.end


DELETION_SEGMENTS: Final = DeletionSegments(noun="segments with rows to delete")
