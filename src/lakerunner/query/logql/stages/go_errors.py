"""Errors whose texts are Go's: users of Loki find them in `__error_details__`."""

from __future__ import annotations


class GoError(Exception):
    """What Go's function returns as its error."""
