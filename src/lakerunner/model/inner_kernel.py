"""Compiles kernels that only other kernels call."""

from __future__ import annotations

from typing import Any

from numba import njit


def inner_kernel(**options: Any) -> Any:
    """As `njit`, for kernels to which only other kernels hand arrays.

    Their callers hold the arrays. So these need not count references to them, which takes longer than a few bytes.
    """
    options |= {"cache": True, "nogil": True, "_nrt": False}
    return njit(**options)
