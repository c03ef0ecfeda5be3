"""Functions of texts."""

from __future__ import annotations

import base64
import re
import urllib.parse

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.functions.signature import INT, STRING, Function, takes
from lakerunner.query.logql.stages.template.go_types import from_bytes, normal, runes, to_bytes
from lakerunner.query.logql.stages.template.limits import check_entry
from lakerunner.query.syntax.strings import quote

#: Go's `unicode.IsSpace`.
SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_BASE64 = {c: number for number, c in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


def upper(text: str) -> str:
    """Upper case, character by character.

    >>> upper("straße"), upper("é")
    ('STRAßE', 'É')
    """
    return text.upper() if text.isascii() else "".join(map(_upper, runes(text)))


def lower(text: str) -> str:
    """Lower case, character by character.

    >>> lower("ÉΣ")
    'éσ'
    """
    return text.lower() if text.isascii() else "".join(map(_lower, runes(text)))


def _upper(c: str) -> str:
    # Where Python maps one character to many, Go knows only the one that titles use, if there is one.
    for changed in (c.upper(), c.title()):
        if len(changed) == 1:
            return changed
    return c


def _lower(c: str) -> str:
    return c.lower()[0] if c == "\u0130" else c.lower()


def _title(c: str) -> str:
    changed = c.title()
    return changed if len(changed) == 1 else c


def title(text: str) -> str:
    """The first letter of each word in title case.

    >>> title("stock low_water x-y")
    'Stock Low_water X-Y'
    """
    out, previous = [], " "
    for c in runes(text) if not text.isascii() else text:
        out.append(_title(c) if _separates(previous) else c)
        previous = c
    return "".join(out)


def _separates(c: str) -> bool:
    if c.isascii():
        return not (c.isalnum() or c == "_")
    return not (c.isalpha() or c.isdecimal()) and c in SPACES


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = len(text) + 1 if not old else text.count(old)
    check_entry(len(text) + (found if count < 0 else min(found, count)) * len(new))
    return normal(text.replace(old, new, count))


def repeat(count: int, text: str) -> str:
    if count < 0:
        raise GoError("strings: negative Repeat count")
    check_entry(count * len(text))
    return normal(text * count)


def indent(spaces: int, text: str) -> str:
    pad = repeat(spaces, " ")
    return pad + replace(text, "\n", "\n" + pad)


def truncated(count: int, text: str) -> str:
    """At most `count` bytes; of a negative count, bytes of the end."""
    raw = to_bytes(text)
    if count < 0:
        return from_bytes(raw[count:]) if len(raw) + count > 0 else text
    return from_bytes(raw[:count])


def substring(start: int, end: int, text: str) -> str:
    raw = to_bytes(text)
    if start < 0:
        if end < 0:
            raise GoError(f"runtime error: slice bounds out of range [:{end}]")
        if end > len(raw):
            raise GoError(f"runtime error: slice bounds out of range [:{end}] with length {len(raw)}")
        return from_bytes(raw[:end])
    if end < 0 or end > len(raw):
        end = len(raw)
    if start > end:
        raise GoError(f"runtime error: slice bounds out of range [{start}:{end}]")
    return from_bytes(raw[start:end])


def align_left(count: int, text: str) -> str:
    """Exactly `count` characters: cut or padded at the end."""
    if count < 0 or count == len(text):
        return text
    check_entry(count)
    return text + " " * (count - len(text)) if count > len(text) else runes(text[:count])


def align_right(count: int, text: str) -> str:
    if count < 0 or count == len(text):
        return text
    check_entry(count)
    return " " * (count - len(text)) + text if count > len(text) else runes(text[len(text) - count :])


def url_encoded(text: str) -> str:
    return urllib.parse.quote_plus(to_bytes(text))


def url_decoded(text: str) -> str:
    if bad := _BAD_ESCAPE.search(text):
        raise GoError(f"invalid URL escape {quote(text[bad.start() : bad.start() + 3])}")
    return from_bytes(urllib.parse.unquote_to_bytes(to_bytes(text.replace("+", " "))))


def base64_encoded(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


def base64_decoded(text: str) -> str:
    """The decoded text; of a broken one, the error as text."""
    raw = to_bytes(text)
    if len(raw) % 4 == 0 and re.fullmatch(rb"[A-Za-z0-9+/]*={0,2}", raw):
        return from_bytes(base64.b64decode(raw))
    return _decoded_by_hand(raw)


def _decoded_by_hand(raw: bytes) -> str:
    """Newlines are ignored, and errors name the byte that does not fit."""
    out, quantum = bytearray(), 0
    count = 0
    for at, byte in enumerate(raw):
        if byte in b"\r\n":
            continue
        if byte == 0x3D:
            return _padded(raw, at, count, quantum, out)
        if byte not in _BASE64:
            return _corrupt(at)
        quantum, count = quantum << 6 | _BASE64[byte], count + 1
        if count == 4:
            out += quantum.to_bytes(3)
            quantum = count = 0
    return _corrupt(len(raw) - count) if count else from_bytes(bytes(out))


def _padded(raw: bytes, at: int, count: int, quantum: int, out: bytearray) -> str:
    """The end of a text whose first `=` is at `at`."""
    rest = [each for each in range(at + 1, len(raw)) if raw[each] not in b"\r\n"]
    if count < 2:
        return _corrupt(at)
    if count == 2:
        if not rest:
            return _corrupt(len(raw))
        if raw[rest[0]] != 0x3D:
            return _corrupt(rest[0] - 1)
        rest = rest[1:]
    if rest:
        return _corrupt(rest[0])
    kept = count - 1
    out += (quantum << 6 * (4 - count)).to_bytes(3)[:kept]
    return from_bytes(bytes(out))


def _corrupt(at: int) -> str:
    return f"illegal base64 data at input byte {at}"


def trimmed(text: str) -> str:
    return text.strip(SPACES)


_ONE, _TWO = (STRING,), (STRING, STRING)

FUNCTIONS: tuple[Function, ...] = (
    takes("lower", _ONE, lower),
    takes("ToLower", _ONE, lower),
    takes("upper", _ONE, upper),
    takes("ToUpper", _ONE, upper),
    takes("title", _ONE, title),
    takes("trim", _ONE, trimmed),
    takes("TrimSpace", _ONE, trimmed),
    takes("Trim", _TWO, lambda text, cut: text.strip(cut)),
    takes("TrimLeft", _TWO, lambda text, cut: text.lstrip(cut)),
    takes("TrimRight", _TWO, lambda text, cut: text.rstrip(cut)),
    takes("TrimPrefix", _TWO, lambda text, prefix: text.removeprefix(prefix)),
    takes("TrimSuffix", _TWO, lambda text, suffix: text.removesuffix(suffix)),
    takes("trimAll", _TWO, lambda cut, text: text.strip(cut)),
    takes("trimPrefix", _TWO, lambda prefix, text: text.removeprefix(prefix)),
    takes("trimSuffix", _TWO, lambda suffix, text: text.removesuffix(suffix)),
    takes("Replace", (STRING, STRING, STRING, INT), replace),
    takes("replace", (STRING, STRING, STRING), lambda old, new, text: replace(text, old, new)),
    takes("repeat", (INT, STRING), repeat),
    takes("indent", (INT, STRING), indent),
    takes("nindent", (INT, STRING), lambda spaces, text: "\n" + indent(spaces, text)),
    takes("trunc", (INT, STRING), truncated),
    takes("substr", (INT, INT, STRING), substring),
    takes("contains", _TWO, lambda part, text: part in text),
    takes("hasPrefix", _TWO, lambda prefix, text: text.startswith(prefix)),
    takes("hasSuffix", _TWO, lambda suffix, text: text.endswith(suffix)),
    takes("alignLeft", (INT, STRING), align_left),
    takes("alignRight", (INT, STRING), align_right),
    takes("urlencode", _ONE, url_encoded),
    takes("urldecode", _ONE, url_decoded),
    takes("b64enc", _ONE, base64_encoded),
    takes("b64dec", _ONE, base64_decoded),
)
