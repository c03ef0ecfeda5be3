"""Labels of metrics as texts that keep the type of the value: its first letter says which it is."""

from __future__ import annotations

from typing import Any

from lakerunner.query.traceql.literals import duration_text
from lakerunner.query.traceql.values import ARRAY, BOOL, DURATION, FLOAT, INT


def encoded_label(kind: int, value: Any) -> str:
    """
    >>> encoded_label(INT, 200), encoded_label(BOOL, True)
    ('i200', 'btrue')
    """
    if kind == INT:
        return f"i{value}"
    if kind == FLOAT:
        return f"f{value!r}"
    if kind == BOOL:
        return "btrue" if value else "bfalse"
    if kind == DURATION:
        return f"s{duration_text(value)}"
    return f"a{value}" if kind == ARRAY else f"s{value}"


def decoded_label(text: str) -> dict[str, Any]:
    """The value as OTLP writes it in JSON.

    >>> decoded_label("i200"), decoded_label("scart")
    ({'intValue': '200'}, {'stringValue': 'cart'})
    """
    match text[:1]:
        case "i":
            return {"intValue": text[1:]}
        case "f":
            number = float(text[1:])
            return {"doubleValue": int(number) if number.is_integer() and abs(number) < 1e15 else number}
        case "b":
            return {"boolValue": text == "btrue"}
    return {"stringValue": text[1:]}
