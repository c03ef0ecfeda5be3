"""The patterns of `| pattern` and of `|>`: literal text with captures in angle brackets, `<method> <_> HTTP`."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from lakerunner.model.errors import BadInput

_CAPTURE = re.compile(r"<([a-zA-Z_][a-zA-Z0-9_]*)>", re.ASCII)
#: The name of a capture that becomes no label.
_UNNAMED = "_"


@dataclass(frozen=True, slots=True)
class Capture:
    name: str

    @property
    def unnamed(self) -> bool:
        return self.name == _UNNAMED


#: Literal texts and captures in turn.
Parts = tuple[str | Capture, ...]


def parse_parser_pattern(text: str) -> Parts:
    """The parts of a pattern that extracts labels.

    >>> parse_parser_pattern("<ip> - <_>")
    (Capture(name='ip'), ' - ', Capture(name='_'))
    """
    parts = _parts(text)
    names = [part.name for part in parts if isinstance(part, Capture) and not part.unnamed]
    if not names:
        raise _bad(text, "at least one named capture is required", "write it like <status>")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _bad(text, f"the capture <{twice}> is there twice")
    return parts


def parse_filter_pattern(text: str) -> Parts:
    """The parts of a pattern that filters lines. Its captures have no names.

    >>> parse_filter_pattern("GET <_>")
    ('GET ', Capture(name='_'))
    """
    parts = _parts(text)
    named = next((part for part in parts if isinstance(part, Capture) and not part.unnamed), None)
    if named is not None:
        raise _bad(text, f"the capture <{named.name}> has a name", "write <_> in a line filter")
    return parts


def _parts(text: str) -> Parts:
    # Every second piece of the split is the name of a capture.
    pieces = enumerate(_CAPTURE.split(text))
    parts = tuple(Capture(piece) if index % 2 else piece for index, piece in pieces if piece)
    for left, right in itertools.pairwise(parts):
        if isinstance(left, Capture) and isinstance(right, Capture):
            raise _bad(text, f"nothing separates <{left.name}> and <{right.name}>")
    return parts


def _bad(text: str, reason: str, hint: str | None = None) -> BadInput:
    return BadInput(f"cannot read pattern {text!r}: {reason}", hint=hint)
