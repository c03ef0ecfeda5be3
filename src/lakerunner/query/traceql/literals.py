"""Numbers, durations and attribute names as TraceQL writes them."""

from __future__ import annotations

import re
from decimal import Decimal

from lakerunner.query.traceql import ast

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 7 * 86_400_000_000_000,
    "y": 365 * 86_400_000_000_000,
}
_PIECE = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|[smhdwy])")
_BARE = re.compile(r'[^\s{}()=~!<>&|^,"\\]+')
_SCOPED = re.compile(r"(parent\.)?(?:(span|resource|event|link|instrumentation)\.|\.)?", re.DOTALL)


def duration_ns(text: str) -> int:
    """
    >>> duration_ns("1m30s"), duration_ns("0.5s")
    (90000000000, 500000000)
    """
    return int(sum(Decimal(number) * _UNITS_NS[unit] for number, unit in _PIECE.findall(text)))


def duration_text(value_ns: int) -> str:
    """As Go prints durations.

    >>> duration_text(150_000_000_000), duration_text(-20_000_000), duration_text(1_500), duration_text(0)
    ('2m30s', '-20ms', '1.5µs', '0s')
    """
    sign, rest = ("-" if value_ns < 0 else ""), abs(value_ns)
    if rest < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= size:
                return f"{sign}{_trimmed(Decimal(rest) / size)}{unit}"
        return "0s"
    hours, rest = divmod(rest, _UNITS_NS["h"])
    minutes, rest = divmod(rest, _UNITS_NS["m"])
    seconds = f"{_trimmed(Decimal(rest) / 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _trimmed(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def attribute_of(text: str) -> ast.Attribute:
    """The attribute that a token names.

    >>> attribute_of('span."queue lag"')
    Attribute(scope='span', name='queue lag', parent=False)
    """
    found = _SCOPED.match(text)
    assert found is not None
    name = re.sub(r'"((?:[^"\\]|\\.)*)"', lambda quoted: _unescaped(quoted.group(1)), text[found.end() :])
    return ast.Attribute(found.group(2) or "", name, bool(found.group(1)))


def attribute_text(attribute: ast.Attribute) -> str:
    """The attribute as written in a query.

    >>> attribute_text(ast.Attribute("", "http.status_code"))
    '.http.status_code'
    """
    name = attribute.name
    if not _BARE.fullmatch(name) or (not attribute.scope and name[:1].isdigit()):
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        name = f'"{escaped}"'
    if attribute.parent:
        return f"parent.{attribute.scope}.{name}" if attribute.scope else f"parent.{name}"
    return f"{attribute.scope}.{name}"


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
