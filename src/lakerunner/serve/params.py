"""Request parameters from the URL and from a form. Times and durations are parsed as Prometheus parses them."""

from __future__ import annotations

import email
import math
import re
from collections.abc import Mapping, Sequence
from email.message import Message
from urllib.parse import unquote, urlencode

from starlette.requests import Request

from lakerunner.model.errors import BadInput
from lakerunner.model.time import FAR_MS, parse_time_ms
from lakerunner.query.syntax.durations import parse_duration_ms
from lakerunner.runtime.http_body import read_body

#: The largest accepted body. Query text may take a quarter of this, and percent-encoding triples its size.
MAX_BODY_BYTES = 1_048_576
_MAX_FIELDS = 1_000
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_DURATION = re.compile(r"(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")


class Params:
    """Named values, possibly repeated. A missing or invalid parameter raises an error that names it."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    @classmethod
    async def of(cls, request: Request) -> Params:
        text: str = request.scope["query_string"].decode("latin-1")
        kind = request.headers.get("content-type", "")
        media = kind.split(";")[0].strip().lower()
        # Form values take precedence: Grafana repeats nothing in the URL, but a proxy may.
        if request.method == "POST" and media == _FORM:
            text = f"{(await body_of(request)).decode(errors='surrogateescape')}&{text}"
        elif request.method == "POST" and media == _MULTIPART:
            text = f"{urlencode(_multipart(kind, await body_of(request)), errors='surrogateescape')}&{text}"
        return cls.in_url(text)

    @classmethod
    def in_url(cls, text: str) -> Params:
        """The parameters of a URL's query string."""
        if text.count("&") >= _MAX_FIELDS:
            raise BadInput(f"cannot read this request: it has more than {_MAX_FIELDS} parameters")
        return cls(_fields(text))

    def text(self, name: str, default: str = "") -> str:
        values = self._values.get(name)
        return values[0] if values else default

    def texts(self, name: str) -> Sequence[str]:
        return self._values.get(name, ())

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value.strip():
            raise BadInput(f'invalid parameter "{name}": it is missing')
        return value

    def time_ms(self, name: str, default_ms: int | None = None) -> int:
        value = self.text(name)
        if not value:
            if default_ms is None:
                raise BadInput(f'invalid parameter "{name}": it is missing', hint="give seconds or an RFC 3339 time")
            return default_ms
        return parse_time_ms(name, value)

    def duration_ms(self, name: str, default_ms: int | None = None) -> int:
        value = self.text(name)
        if not value:
            if default_ms is None:
                raise BadInput(f'invalid parameter "{name}": it is missing', hint="give seconds or a duration like 1m")
            return default_ms
        return parse_span_ms(name, value)

    def count(self, name: str, default: int = 0) -> int:
        value = self.text(name)
        if not value:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise BadInput(f'invalid parameter "{name}": {value[:50]!r} is not a non-negative integer')
        return int(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.text(name).lower()
        return value in ("1", "true", "yes", "all") if value else default


def _fields(text: str) -> dict[str, list[str]]:
    """The same as `parse_qs` with blank values, which takes five times as many calls for each field.

    >>> _fields("a=1&b=x+y%26&a=&c")
    {'a': ['1', ''], 'b': ['x y&'], 'c': ['']}
    """
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        if not pair:
            continue
        name, _, value = pair.replace("+", " ").partition("=")
        if "%" in pair:
            name, value = unquote(name, errors="surrogateescape"), unquote(value, errors="surrogateescape")
        found.setdefault(name, []).append(value)
    return found


def _multipart(kind: str, body: bytes) -> list[tuple[str, str]]:
    """The fields of a form in parts."""
    message = email.message_from_bytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    parts = message.get_payload()
    if not isinstance(parts, list):
        raise BadInput("cannot read the form: its parts are not separated by the boundary of its Content-Type")
    found = []
    for part in parts:
        assert isinstance(part, Message)
        name = part.get_param("name", header="Content-Disposition")
        value = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(value, bytes):
            found.append((name, value.decode(errors="surrogateescape")))
    return found


async def body_of(request: Request) -> bytes:
    """Read the whole body, up to `MAX_BODY_BYTES`.

    The body stays in the request's scope, because the request may have to be forwarded to the slow lane.
    """
    body = await read_body(request, MAX_BODY_BYTES, "shorten the query; see docs/api.md")
    request.scope["lakerunner.body"] = body
    return body


def wants_fresh(request: Request) -> bool:
    """Whether the client refuses cached answers."""
    control = request.headers.get("cache-control", "").lower()
    return "no-cache" in control or "no-store" in control


def parse_tier_s(name: str, text: str) -> int:
    """Parse the coarsest tier that a query may read, in seconds or as a duration; 0 or `off` for none.

    >>> parse_tier_s("max_tier", "1h"), parse_tier_s("max_tier", "off"), parse_tier_s("max_tier", "300")
    (3600, 0, 300)
    """
    if text.lower() in ("off", "raw"):
        return 0
    span_ms = parse_span_ms(name, text)
    if span_ms < 0:
        raise _bad_span(name, text)
    return span_ms // 1000


def parse_span_ms(name: str, text: str) -> int:
    """Parse a number of seconds, or a duration, to milliseconds.

    >>> parse_span_ms("step", "15"), parse_span_ms("step", "1m30s"), parse_span_ms("step", "0.5")
    (15000, 90000, 500)
    """
    try:
        seconds = float(text)
    except ValueError:
        if not _DURATION.fullmatch(text):
            raise _bad_span(name, text) from None
        return min(parse_duration_ms(text), FAR_MS)
    # Python takes more for a number: blanks around it, and underscores within.
    if not math.isfinite(seconds) or abs(seconds) * 1000 > FAR_MS or "_" in text or text != text.strip():
        raise _bad_span(name, text)
    return round(seconds * 1000)


def _bad_span(name: str, text: str) -> BadInput:
    return BadInput(f'invalid parameter "{name}": cannot parse {text[:50]!r} to a valid duration')
