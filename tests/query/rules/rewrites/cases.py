"""What a random query is: its text and its steps."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    language: str
    text: str
    start_s: int
    end_s: int
    step_s: int
    #: Whether it allows an answer within a stated error. Few different values are counted exactly all the same.
    approximate: bool = False

    def __str__(self) -> str:
        return f"{self.text} from {self.start_s} to {self.end_s} by {self.step_s}"


def with_steps(rng: random.Random, language: str, text: str, *, approximate: bool = False) -> Query:
    """At steps that mostly lie on the edges of buckets; some queries have one step."""
    start_s = rng.choice((0, 60, 120, 240)) + rng.choice((0, 10, 20) if rng.random() < 0.93 else (5,))
    if rng.random() < 0.15:
        return Query(language, text, start_s, start_s, 0, approximate)
    step_s = rng.choice((10, 20, 30, 60) if rng.random() < 0.93 else (15,))
    return Query(language, text, start_s, start_s + rng.choice((60, 180, 240)), step_s, approximate)
