"""Whether a template can be parsed: the parser asks before any stage is compiled."""

from __future__ import annotations

from lakerunner.model.errors import BadInput


def check_template(text: str) -> None:
    """Refuse a template that Go's `text/template` would not parse."""
    if not text.isprintable() and "\0" in text:
        raise BadInput("cannot read template: it has a NUL character")
