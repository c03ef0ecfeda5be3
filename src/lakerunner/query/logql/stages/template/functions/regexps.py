"""Functions with regular expressions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import re2  # type: ignore[import-untyped]

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.functions.signature import STRING, Function, takes
from lakerunner.query.logql.stages.template.go_types import from_bytes, to_bytes
from lakerunner.query.logql.stages.template.limits import check_entry
from lakerunner.query.series.patterns import MAX_MEMORY_BYTES, MAX_STEPS

_CACHED = 256
#: Arrow's replacements know these groups.
_ARROW_GROUPS = 9
_REFERENCE = re.compile(rb"\$(?:(\$)|([0-9A-Za-z_]+)|\{([0-9A-Za-z_]+)\})")
#: RE2's reasons, and the words that Go has for them.
_REASONS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\ at end of regexp": "trailing backslash at end of expression",
    "trailing \\": "trailing backslash at end of expression",
}


@functools.lru_cache(maxsize=_CACHED)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        return re2.compile(to_bytes(pattern), options)
    except re2.error as reason:
        text = reason.args[0]
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        name, _, part = text.partition(": ")
        return GoError(f"error parsing regexp: {_REASONS.get(name, name)}: `{part}`")


def arrow_template(pattern: str, template: str) -> str | None:
    """The replacement as Arrow writes it, with `\\1` for a group; None if it has no such form.

    >>> print(arrow_template("(a)(b)", "${2}-$1x$$"))
    \\2-$
    """
    regex = _compiled(pattern)
    if isinstance(regex, GoError):
        return None
    out, last = "", 0
    for reference in _REFERENCE.finditer(to_bytes(template)):
        number = -1 if reference[1] else _group_number(regex, reference)
        if number > _ARROW_GROUPS:
            return None
        out += _escaped(template, last, reference.start())
        out += "$" if reference[1] else f"\\{number}" if number >= 0 else ""
        last = reference.end()
    return out + _escaped(template, last, None)


def _escaped(template: str, start: int, end: int | None) -> str:
    return from_bytes(to_bytes(template)[start:end]).replace("\\", "\\\\")


def steps(pattern: str, longest: int) -> int | None:
    """How much one match over the longest text may cost; None for a broken pattern."""
    regex = _compiled(pattern)
    return None if isinstance(regex, GoError) else int(regex.programsize) * longest


def _matches(pattern: str, raw: bytes) -> Iterator[Any]:
    """The matches, of which an empty one never directly follows another."""
    regex = _compiled(pattern)
    if isinstance(regex, GoError):
        raise regex
    if regex.programsize * len(raw) > MAX_STEPS:
        raise LimitHit(
            f"cannot match a regular expression: {regex.programsize:,} instructions over {len(raw):,} bytes are more "
            f"than {MAX_STEPS:,} steps (fixed)"
        )
    at, ended = 0, -1
    while at <= len(raw):
        found = regex.search(raw, at)
        if found is None:
            return
        start, end = found.span()
        if end > start or start != ended:
            yield found
        ended = end
        at = end if end > at else at + _rune_bytes(raw, at)


def _rune_bytes(raw: bytes, at: int) -> int:
    """How many bytes the character at `at` takes."""
    if at >= len(raw) or raw[at] < 0xC2:
        return 1
    size = 2 if raw[at] < 0xE0 else 3 if raw[at] < 0xF0 else 4
    return size if all(byte & 0xC0 == 0x80 for byte in raw[at + 1 : at + size]) else 1


def _replaced(pattern: str, text: str, expand: Callable[[Any], bytes]) -> str:
    raw = to_bytes(text)
    out: list[bytes] = []
    last = size = 0
    for found in _matches(pattern, raw):
        out += (raw[last : found.start()], expand(found))
        size += len(out[-1])
        check_entry(size)
        last = found.end()
    out.append(raw[last:])
    return from_bytes(b"".join(out))


def replace_all(pattern: str, text: str, template: str) -> str:
    """Replaces matches by a text in which `$1`, `${1}` and `${name}` are groups.

    >>> replace_all("(a)(b)?", "aab", "[$1$2]")
    '[a][ab]'
    """
    raw = to_bytes(template)
    if b"$" not in raw:
        return _replaced(pattern, text, lambda _: raw)

    def expand(found: Any) -> bytes:
        return _REFERENCE.sub(lambda reference: _group(found, reference), raw)

    return _replaced(pattern, text, expand)


def _group(found: Any, reference: re.Match[bytes]) -> bytes:
    if reference[1]:
        return b"$"
    number = _group_number(found.re, reference)
    return (found.group(number) or b"") if number >= 0 else b""


def _group_number(regex: Any, reference: re.Match[bytes]) -> int:
    """The group that a reference names; -1 if there is none."""
    name = (reference[2] or reference[3]).decode()
    if name.isdigit():
        number = int(name) if len(name) == 1 or name[0] != "0" else -1
    else:
        number = regex.groupindex.get(name.encode(), regex.groupindex.get(name, -1))
    return number if number <= regex.groups else -1


def replace_all_literal(pattern: str, text: str, replacement: str) -> str:
    raw = to_bytes(replacement)
    return _replaced(pattern, text, lambda _: raw)


def count(pattern: str, text: str) -> int:
    return sum(1 for _ in _matches(pattern, to_bytes(text)))


_THREE = (STRING, STRING, STRING)

FUNCTIONS: tuple[Function, ...] = (
    takes("regexReplaceAll", _THREE, replace_all),
    takes("regexReplaceAllLiteral", _THREE, replace_all_literal),
    takes("count", (STRING, STRING), count),
)
