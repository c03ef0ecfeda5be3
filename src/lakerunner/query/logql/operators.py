"""The binary operators of LogQL and their precedence."""

from __future__ import annotations

#: A higher number binds tighter.
PRECEDENCE = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(("==", "!=", ">", "<", ">=", "<="), 3),
    "+": 4,
    "-": 4,
    **dict.fromkeys(("*", "/", "%"), 5),
    "^": 6,
}
RIGHT_ASSOCIATIVE = frozenset({"^"})
