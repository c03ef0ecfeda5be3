"""The inputs of backfill: live segments whose rows were not evaluated with all rules of the current catalog."""

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


class UnevaluatedSegments(Segments):
    """Announced on request; and by reconciliation, if their rows came while the catalog changed."""

    __slots__ = ()

    def overdue(
        self, tx: Connection, stage: str, signals: Sequence[Signal], due: Overdue, after: Position
    ) -> tuple[list[Outgoing], Position | None]:
        page = overdue.stragglers(tx, stage, [signal.name for signal in signals], due, after)
        return segments_made(page.found, [stage]), page.end


UNEVALUATED: Final = UnevaluatedSegments(noun="segments that rules have not seen")
