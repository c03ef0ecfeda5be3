"""Refuses entries that a stage of the pipeline failed on: what they count for is unknown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import LabelSet
from lakerunner.query.logql.entries import ERROR, Entries, plain
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.vectors.annotations import format_labels

#: Errors of parsers, which a query may ask for by name. Those of filters, formats and `unwrap` are always refused.
_OF_PARSERS = pa.array(["JSONParserErr", "LogfmtParserErr"])


def refuse_failed(entries: Entries, keeps_errors: bool) -> None:
    """Raise if an entry failed, unless the query wants to see it."""
    errors = entries.label(ERROR)
    if errors is None or errors.null_count == len(errors):
        return
    errors = plain(errors)
    failed = pc.not_equal(pc.fill_null(errors, ""), "")
    if keeps_errors:
        failed = pc.and_(failed, pc.invert(pc.is_in(errors, value_set=_OF_PARSERS)))
    at = pc.index(failed, True).as_py()
    if at < 0:
        return
    one = entries.taken(np.array([at]))
    found = {name: values[0].as_py() for name in one.names() if (values := one.label(name)) is not None}
    labels = LabelSet.of({name: value for name, value in found.items() if value})
    raise EvaluationError(
        f"pipeline error: '{errors[at].as_py()}' for series: '{format_labels(labels)}'",
        hint='leave such lines out with | __error__="" after the stage that fails, or keep them with | drop __error__',
    )
