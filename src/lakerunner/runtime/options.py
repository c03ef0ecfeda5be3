"""Parse options that are passed through to a library: NAME=VALUE separated by spaces, quoted as in a shell."""

from __future__ import annotations

import shlex

from lakerunner.model.errors import BadInput


def parse_options(text: str, where: str, prefix: str = "") -> dict[str, str]:
    """Return the options as name -> value.

    >>> parse_options('spark.executor.memory=4g spark.app.note="two words"', "spark.options", "spark.")
    {'spark.executor.memory': '4g', 'spark.app.note': 'two words'}
    """
    try:
        parts = shlex.split(text)
    except ValueError as reason:
        raise BadInput(f"cannot read {where}: {reason}", where=where) from None
    options = {}
    for nth, part in enumerate(parts, 1):
        name, equals, value = part.partition("=")
        if not equals or not name.startswith(prefix):
            # Only the beginning is shown, because the text may be a password.
            raise BadInput(
                f"cannot use part {nth} of {where}, which starts with {part[:16]!r}",
                hint=f"write {prefix}name=value",
                where=where,
            )
        options[name] = value
    return options
