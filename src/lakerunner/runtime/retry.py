"""Retry with exponential back-off and full jitter, only for errors whose class is retryable."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TypeVar

from lakerunner.model.errors import LakeError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after a number of failed attempts."""

    base_s: float = 0.1
    cap_s: float = 10.0

    def ceiling_s(self, failures: int) -> float:
        # The exponent is bounded because 2.0 ** failures overflows after enough failures.
        return min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 60))

    def delay_s(self, failures: int) -> float:
        """Return a random wait below the ceiling, so that callers that failed together do not retry together."""
        return random.uniform(0.0, self.ceiling_s(failures))


def retrying(
    call: Callable[[], T],
    *,
    attempts: int,
    backoff: Backoff,
    deadline_s: float | None = None,
    on_retry: Callable[[LakeError, int], None] | None = None,
    pause: Callable[[float], None] = sleep,
) -> T:
    """Return the call's result. Retryable errors are retried, up to `attempts` calls and within the deadline."""
    end = None if deadline_s is None else monotonic() + deadline_s
    failures = 0
    while True:
        try:
            return call()
        except LakeError as error:
            failures += 1
            delay_s = backoff.delay_s(failures)
            out_of_time = end is not None and monotonic() + delay_s > end
            if not error.retryable or failures >= attempts or out_of_time:
                raise
            if on_retry is not None:
                on_retry(error, failures)
            pause(delay_s)
