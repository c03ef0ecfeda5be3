"""Expressions with a token lost, doubled, exchanged or foreign: most are no PromQL, and both must see it alike."""

from __future__ import annotations

import random
import re

_TOKEN = re.compile(r"""\s+|"[^"]*"|[A-Za-z_][A-Za-z0-9_]*|[0-9.]+[a-z]*|[=!<>]=|=~|!~|</|>/|.""", re.DOTALL)
#: Not NaN: Prometheus takes `offset NaN` for an offset beyond all time, we refuse it.
_FOREIGN = (
    *("(", ")", "[", "]", "{", "}", ",", "=", "=~", "@", ":", "-", "+", "^", "</", "==", "'a'", "`b`", '"c"', "#x\n"),
    *("by", "without", "on", "ignoring", "group_left", "bool", "offset", "smoothed", "anchored", "fill", "and", "or"),
    *("sum", "rate", "start()", "5m", "1e", "0x1f", "Inf", "1_000", "0.5", "08", "1h30m", "5m1h", "__name__"),
)


def mutant(text: str, chance: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(len(tokens))
        match chance.randrange(4):
            case 0 if len(tokens) > 1:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                other = chance.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                tokens[at] = f" {chance.choice(_FOREIGN)} "
    return "".join(tokens)
