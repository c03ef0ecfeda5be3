"""Announcing again what nobody ended, for every stage: with this, a bus that lost everything has lost nothing.

`index/overdue.py` says at which ages. Messages that come twice are harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lakerunner.index import outbox, overdue
from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import START, Overdue, Position
from lakerunner.pipeline.items import work_ready
from lakerunner.pipeline.stage import AnyStage

#: Messages for the things after that position, and the position after which the next page begins.
_Page = Callable[[Connection, Position], tuple[list[Outgoing], Position | None]]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How many messages announce inputs, and how many announce items."""

    inputs: int
    items: int
    #: Messages of `inputs` for what became due by the passing of time: nothing was lost or late.
    on_time: int = 0


def reconcile(
    database: Database, stages: Sequence[AnyStage], due: Overdue, lease: Lease | None = None
) -> Reconciled:  # fmt: skip
    """Announce inputs without an item and items without an end. `due.since_s` is the time since the last call."""
    inputs = items = on_time = 0
    for stage in stages:
        announced = _announce(database, lease, partial(_inputs, stage, due))
        inputs += announced
        on_time += announced if stage.inputs.due_by_time else 0
        items += _announce(database, lease, partial(_items, stage, due))
    return Reconciled(inputs, items, on_time)


def _announce(database: Database, lease: Lease | None, page: _Page) -> int:
    announced = 0
    last: Position | None = START
    while last is not None:
        with database.transaction() as tx:
            if lease is not None:
                require_held(tx, lease)
            messages, last = page(tx, last)
            outbox.put(tx, messages)
        announced += len(messages)
    return announced


def _inputs(
    stage: AnyStage, due: Overdue, tx: Connection, after: Position
) -> tuple[list[Outgoing], Position | None]:  # fmt: skip
    return stage.inputs.overdue(tx, stage.name, stage.signals, due, after)


def _items(
    stage: AnyStage, due: Overdue, tx: Connection, after: Position
) -> tuple[list[Outgoing], Position | None]:  # fmt: skip
    page = overdue.open_items(tx, stage.name, due, after)
    return [work_ready(item) for item in page.found], page.end
