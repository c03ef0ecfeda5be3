"""Errors of template functions, which become the details of `TemplateFormatErr`."""

from __future__ import annotations

from lakerunner.query.syntax.strings import quote


class GoError(Exception):
    """What Go's function returns as its error."""


def quoted(text: str) -> str:
    """A text in quotes, as Go's errors show it."""
    return quote(text)
