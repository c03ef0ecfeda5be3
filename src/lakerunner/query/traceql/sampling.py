"""How many spans a sampled span stands for, by the probability that its trace state tells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.traceql.values import NIL, Values

#: The member of OpenTelemetry in a W3C trace state, and its fields: the threshold of rejection, and the random value.
_MEMBER = r"(?:^|,)\s*ot=(?P<found>[^,]*)"
_THRESHOLD = r"(?:^|;)th:(?P<found>[0-9a-f]{1,14})(?:;|$)"
_RANDOM = r"(?:^|;)rv:(?P<found>[0-9a-f]{14})(?:;|$)"
_DIGITS = 14
_ALL = float(1 << 56)
_NIBBLE = 4


def weights_of(trace_states: Values) -> Floats:
    """The weight of each span: 1 divided by the probability with which it was kept; 1 where that is unknown.

    As in Tempo, a random value in the trace state rounds the weight up or down to a whole number.
    """
    if not len(trace_states.texts):
        return np.ones(len(trace_states))
    known = adjusted_counts(pa.array(trace_states.texts.tolist(), pa.string()))
    return np.where(trace_states.kind == NIL, 1.0, known[np.minimum(trace_states.code, len(known) - 1)])


def adjusted_counts(texts: pa.Array) -> Floats:
    """
    >>> adjusted_counts(pa.array(["ot=th:8", "a=b, ot=rv:00000000000000;th:c", "ot=th:0", "vendor=x", ""])).tolist()
    [2.0, 4.0, 1.0, 1.0, 1.0]
    >>> adjusted_counts(pa.array(["ot=th:5;rv:00000000000000", "ot=th:5;rv:ffffffffffffff"])).tolist()
    [2.0, 1.0]
    """
    member = _found(texts, _MEMBER)
    threshold, has_threshold = _numbers(_found(member, _THRESHOLD))
    random, has_random = _numbers(_found(member, _RANDOM))
    exact = np.where(has_threshold, _ALL / (_ALL - threshold.astype(np.float64)), 1.0)
    below = np.floor(exact)
    rounded = below + (random.astype(np.float64) / _ALL < exact - below)
    return np.where(has_random, rounded, exact)


def _found(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.extract_regex(texts, pattern).field("found")


def _numbers(digits: pa.Array) -> tuple[Ints, np.ndarray]:
    """Hexadecimal digits, of which trailing zeros may be missing, as whole numbers; and which are there."""
    present = digits.is_valid().to_numpy(zero_copy_only=False)
    padded = pc.utf8_rpad(pc.fill_null(digits, ""), width=_DIGITS, padding="0")
    codes = np.frombuffer("".join(padded.to_pylist()).encode(), np.uint8).reshape(-1, _DIGITS).astype(np.int64)
    values = np.where(codes >= ord("a"), codes - ord("a") + 10, codes - ord("0"))
    places = _NIBBLE * np.arange(_DIGITS - 1, -1, -1, dtype=np.int64)
    return (values << places).sum(axis=1), present
