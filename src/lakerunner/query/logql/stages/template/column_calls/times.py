"""Times in UTC as texts and numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Ints
from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised
from lakerunner.query.logql.stages.template.columns import Column, Constant, Numbers, Texts
from lakerunner.query.logql.stages.template.go_layout import chunks, formatted
from lakerunner.query.logql.stages.template.go_time import Time

_SECOND_NS = 1_000_000_000


def time_texts(times_ns: Ints, layout: str) -> pa.StringArray:
    """Times in UTC by a layout: once for each second, and fractions of seconds with numpy."""
    seconds, nanos = np.divmod(times_ns, _SECOND_NS)
    found, codes = np.unique(seconds, return_inverse=True)
    index = pa.array(codes)
    parts: list[pa.Array] = []
    whole = ""
    for literal, part in chunks(layout):
        if part[:1] not in (".", ","):
            whole += literal + part
            continue
        parts += (_by_second(found, index, whole + literal), _fractions(nanos, part))
        whole = ""
    parts.append(_by_second(found, index, whole))
    return pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]


def _by_second(seconds: Ints, index: pa.Array, layout: str) -> pa.StringArray:
    texts = [formatted(Time(second), layout) for second in seconds.tolist()] if layout else [""] * len(seconds)
    return pa.array(texts, pa.string()).take(index)


def _fractions(nanos: Ints, part: str) -> pa.StringArray:
    digits = pc.utf8_lpad(pa.array(nanos).cast(pa.string()), 9, "0")
    width = len(part) - 1
    digits = pc.utf8_slice_codeunits(digits, 0, width) if width < 9 else pc.utf8_rpad(digits, width, "0")
    if part[1] == "0":
        return pc.binary_join_element_wise(part[0], digits, "")
    digits = pc.utf8_rtrim(digits, "0")
    return pc.if_else(pc.equal(digits, ""), "", pc.binary_join_element_wise(part[0], digits, ""))


def _date(layout: Column, times: Column) -> Column | None:
    if not isinstance(layout, Constant) or not isinstance(times, Numbers) or times.go_type != "time.Time":
        return None
    return Texts(time_texts(times.array.astype(np.int64), layout.value))


def _method_format(times: Column, layout: Column) -> Column | None:
    return _date(layout, times)


def _epoch(unit_ns: int, *, as_text: bool) -> Vectorised:
    def call(times: Column) -> Column | None:
        if not isinstance(times, Numbers):
            return None
        numbers = times.array.astype(np.int64) // unit_ns
        return Texts(pa.array(numbers).cast(pa.string())) if as_text else Numbers(numbers, "int64")

    return call


VECTORISED: dict[str, Vectorised] = {
    "date": _date,
    "unixEpoch": _epoch(_SECOND_NS, as_text=True),
    "unixEpochMillis": _epoch(1_000_000, as_text=True),
    "unixEpochNanos": _epoch(1, as_text=True),
    ".Format": _method_format,
    ".Unix": _epoch(_SECOND_NS, as_text=False),
    ".UnixMilli": _epoch(1_000_000, as_text=False),
    ".UnixNano": _epoch(1, as_text=False),
}
