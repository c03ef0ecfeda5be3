"""`unwrap`: the value of a label becomes the sample of the entry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries
from lakerunner.query.logql.stages import quantities
from lakerunner.query.logql.stages.fields import with_parser_error
from lakerunner.query.logql.stages.label_filters import with_verdict

UNWRAP_ERROR = "SampleExtractionErr"

_READERS: dict[str, quantities.Reader] = {
    "": quantities.number,
    "duration": quantities.seconds,
    "duration_seconds": quantities.seconds,
    "bytes": quantities.size,
}


def unwrapped(entries: Entries, unwrap: ast.Unwrap, check: Check) -> tuple[Entries, npt.NDArray[np.float64]]:
    """The entries that have a value under the label, and their samples.

    A value that cannot be read is 0, and its entry is marked as failed. The entries keep the label: what follows may
    filter and group by it.
    """
    values = entries.label(unwrap.label)
    if values is None:
        return entries.filtered(np.zeros(len(entries), np.bool_)), np.zeros(0)
    if pa.types.is_float64(values.type):
        # Numbers that were stored as such. Whoever asked for them has no further filters.
        if not values.null_count:
            return entries, values.to_numpy()
        return entries.filtered(values.is_valid().to_numpy(zero_copy_only=False)), values.drop_null().to_numpy()
    there = pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False)
    entries = entries.filtered(there)
    values = entries.label(unwrap.label)
    assert values is not None
    found = quantities.quantities(values, _READERS[unwrap.conversion], check)
    samples = np.where(found.unreadable, 0.0, found.numbers)
    entries = with_parser_error(entries, found.unreadable, UNWRAP_ERROR, found.errors)
    for stage in unwrap.filters:
        entries, keep = with_verdict(entries, stage.condition, check)
        samples = samples[keep]
    return entries, samples
