"""Narrow an item that cannot succeed down to the input at fault: halve it, and give up an input that fails alone."""

from __future__ import annotations

from lakerunner.index.commit import commit_item
from lakerunner.index.database import Database
from lakerunner.model.errors import LakeError
from lakerunner.pipeline.items import split_item
from lakerunner.pipeline.stage import I, Item, Stage
from lakerunner.runtime.metrics import OBJECTS_QUARANTINED, STAGE_ITEMS
from lakerunner.runtime.telemetry import log


def narrow(database: Database, stage: Stage[I], item: Item[I], error: LakeError) -> LakeError | None:
    """End the item so that its other inputs land. Returns the error when that is not possible.

    A bad input among a thousand is found after ten halvings, and each lets half of the remaining inputs land.
    """
    about = {"stage": stage.name, "org": str(item.org_id), "signal": item.signal, "item": str(item.item_id)}
    try:
        if len(item.inputs) > 1:
            split_item(database, stage, item, str(error))
            STAGE_ITEMS.labels(stage.name, "split").inc()
            log().warning("item split", inputs=len(item.inputs), error=str(error), **about)
            return None
        given_up = stage.inputs.given_up(item.item_id, item.inputs[0], str(error))
        if given_up is None:
            return error
        commit_item(database, given_up)
    except LakeError as reason:
        return reason
    STAGE_ITEMS.labels(stage.name, "given_up").inc()
    OBJECTS_QUARANTINED.labels(item.signal).inc(len(given_up.objects))
    log().warning("input given up", input=str(stage.inputs.input_id(item.inputs[0])), reason=str(error), **about)
    return None
