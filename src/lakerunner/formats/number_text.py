"""The text of a double, as OTLP's translation to text writes it: JSON's number form with the fewest digits."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def float_text(value: float) -> str:
    """Format one double.

    >>> float_text(1.0), float_text(1e21), float_text(2.5e-7), float_text(1e16)
    ('1', '1e+21', '2.5e-7', '10000000000000000')
    """
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = np.format_float_positional(value, trim="-")
        return text
    mantissa, exponent = repr(value).split("e") if "e" in repr(value) else f"{value:e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


def float_texts(doubles: pa.Array) -> pa.Array:
    """Format finite doubles; the others have Arrow's texts `nan`, `inf` and `-inf`, which read as numbers everywhere.

    Arrow alone would write an exponent from 1e10 on and below 1e-5.
    """
    text = pc.cast(doubles, pa.string())
    whole = _whole(doubles)
    if whole is not None:
        text = pc.coalesce(pc.cast(whole, pa.string()), text)
    scientific = pc.fill_null(pc.match_substring(text, "e"), False)
    if not pc.any(scientific).as_py():
        return text
    encoded = doubles.filter(scientific).dictionary_encode()
    texts = pa.array([float_text(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(text, scientific, texts.take(encoded.indices))


def _whole(doubles: pa.Array) -> pa.Array | None:
    """The large whole numbers as integers, null elsewhere; None if there are none."""
    size = pc.abs(doubles)
    large = pc.and_(pc.greater_equal(size, 1e10), pc.less_equal(size, float(1 << 53)))
    plain = pc.and_(pc.equal(pc.floor(doubles), doubles), large)
    if not pc.any(plain).as_py():
        return None
    return pc.if_else(plain, pc.cast(pc.if_else(plain, doubles, 0.0), pa.int64(), safe=False), None)
