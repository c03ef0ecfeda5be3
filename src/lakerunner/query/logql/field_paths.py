"""The expressions of `json x="…"` and `logfmt x="…"`: which field of a line becomes the label."""

from __future__ import annotations

import re

from lakerunner.model.errors import BadInput

_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
#: A bracket ends a quoted key too, so that no key has one.
_KEY = r'"([^"\]]*)["\]]'
_SPACE = r"[ \t\n]*"
_STEP = re.compile(rf"{_SPACE}(?:\[{_SPACE}(?:{_KEY}|(\d{{1,18}})){_SPACE}\]|(\.)?{_SPACE}({_NAME})){_SPACE}", re.ASCII)
_LOGFMT_KEY = re.compile(rf"{_SPACE}(?:{_KEY}|({_NAME})){_SPACE}")

#: Keys of objects and indexes of arrays.
Path = tuple[str | int, ...]


def parse_json_path(text: str) -> Path:
    """The steps to a field.

    >>> parse_json_path('request.headers["User-Agent"][0]')
    ('request', 'headers', 'User-Agent', 0)
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text) or not steps:
        found = _STEP.match(text, at)
        if found is None:
            raise _bad(text, at)
        key, index, dot, name = found.groups()
        # A dot stands before every name but the first.
        if name is not None and bool(dot) != bool(steps):
            raise _bad(text, at)
        steps.append(key if key is not None else name if name is not None else int(index))
        at = found.end()
    return tuple(steps)


def parse_logfmt_key(text: str) -> str:
    """The key of a pair.

    >>> parse_logfmt_key("status"), parse_logfmt_key('"http.status"')
    ('status', 'http.status')
    """
    found = _LOGFMT_KEY.fullmatch(text)
    if found is None:
        raise BadInput(f"cannot read {text!r} as the key of a field", hint='put double quotes around a key like "a-b"')
    return found[1] if found[1] is not None else found[2]


def _bad(text: str, at: int) -> BadInput:
    rest = text[at:].strip()
    found = f"unexpected {rest[:20]!r}" if rest else "it ends too early"
    return BadInput(
        f"cannot read {text!r} as the path of a field: {found}", hint='write it like a.b[0] or ["odd key"].b'
    )
