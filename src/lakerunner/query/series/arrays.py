"""Arrays to be filled, in memory that was used before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def allocated(length: int, kind: type) -> npt.NDArray[Any]:
    """An array of 8-byte numbers in Arrow's pool, which keeps pages that were used before.

    numpy would ask the system for fresh pages each time, which must be cleared: a third of the time of large rates.
    """
    return np.frombuffer(pa.allocate_buffer(length * 8), kind, length)
