"""Queries with a token lost, doubled, exchanged or foreign: most are invalid, and both servers must see it alike."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_TOKEN = re.compile(
    r"""\s+|"[^"]*"|[A-Za-z_][A-Za-z0-9_]*|[0-9.]+[a-z]*|[=!<>|]=|=~|!~|\|~|\|>|!>|</|>/|.""", re.DOTALL
)


def mutant(text: str, chance: random.Random, foreign: Sequence[str]) -> str:
    """The text with one or two tokens changed; `foreign` are tokens that may come in."""
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
                tokens[at] = f" {chance.choice(foreign)} "
    return "".join(tokens)
