"""What an expression does with the samples that it reads, and so the coarsest tier that gives the same answer.

A tier keeps the first and the last sample of every bucket, and aggregates of the samples between them. Buckets are open
to the left and closed to the right, as PromQL's windows are. If every edge of every window is an edge of buckets, a
function that needs no more than the kept samples and the aggregates has the same value over the tier as over raw
samples.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

import numpy as np

from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals.tiers import TIERS_S
from lakerunner.query.series.histograms.histogram import Ints


class Need(enum.StrEnum):
    """Which aggregates of a bucket a function needs, besides the samples that the tier keeps."""

    #: Samples that a tier does not keep.
    RAW = "raw"
    #: The kept samples alone: the latest, the first, whether there is any.
    KEPT = "kept"
    COUNT = "count"
    #: The number of samples, and what counter resets inside the bucket took away.
    RATE = "rate"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: The distribution of the values, within 0.55% of each: an approximation, only where a query allows it.
    SKETCH = "sketch"
    #: Not samples: which series there are. Raw segments say it, and tiers where raw samples have expired.
    SERIES = "series"
    #: Not samples: their exemplars. Where raw samples have expired, tiers have those of the samples that they keep.
    EXEMPLARS = "exemplars"


@dataclass(frozen=True, slots=True)
class Reading:
    """The coarsest tier that a read may use, what it needs of it, and why it may use no coarser one."""

    need: Need = Need.RAW
    tier_s: int = RAW_TIER_S
    #: A sentence for EXPLAIN. Two reads that differ only here read the same.
    why: str = field(default="", compare=False)

    @classmethod
    def of(cls, need: Need, what: str, ends_ms: Ints, width_ms: int, max_tier_s: int) -> Reading:
        """The reading of a function whose windows have these ends, and this width, or 0 if only the ends matter.

        `what` names the function in the reason.
        """
        if need is Need.RAW:
            unless = "; approximate=1 allows their sketches, within 1%" if what == "quantile_over_time" else ""
            return cls(why=f"{what} needs samples that tiers do not keep{unless}")
        if max_tier_s < TIERS_S[0]:
            return cls(why="tiers are switched off")
        grid_ms = math.gcd(_grid_ms(ends_ms), width_ms)
        fitting = [tier_s for tier_s in TIERS_S if grid_ms % (tier_s * 1000) == 0]
        allowed = [tier_s for tier_s in fitting if tier_s <= max_tier_s]
        if not allowed:
            return cls(why=f"the windows begin or end inside of buckets: their edges are multiples of {_span(grid_ms)}")
        tier_s = allowed[-1]
        if len(allowed) < len(fitting):
            why = f"no tier coarser than {_span(max_tier_s * 1000)} is allowed"
        elif tier_s == TIERS_S[-1]:
            why = "there is no coarser tier"
        else:
            next_s = TIERS_S[TIERS_S.index(tier_s) + 1]
            why = f"the edges of the windows are multiples of {_span(grid_ms)}, not of {_span(next_s * 1000)}"
        return cls(need, tier_s, why)


#: A read of raw samples, whatever is done with them.
RAW = Reading()
#: Questions about series and exemplars. They read a tier only where raw samples have expired.
SERIES = Reading(Need.SERIES, TIERS_S[-1])
EXEMPLARS = Reading(Need.EXEMPLARS, TIERS_S[-1])


def _grid_ms(times_ms: Ints) -> int:
    """What all these times are multiples of.

    >>> _grid_ms(np.array([60_000, 90_000, 120_000])), _grid_ms(np.array([50, 70, 75])), _grid_ms(np.array([-40]))
    (30000, 5, 40)
    """
    if len(times_ms) < 2:
        return abs(int(times_ms[0])) if len(times_ms) else 0
    step_ms = int(times_ms[1] - times_ms[0])
    # Steps are nearly always evenly spaced, and a query has up to thousands of them.
    if bool((times_ms[1:] - times_ms[:-1] == step_ms).all()):
        return math.gcd(int(times_ms[0]), step_ms)
    return int(np.gcd.reduce(times_ms))


def _span(ms: int) -> str:
    """
    >>> _span(5_400_000), _span(86_400_000), _span(1), _span(0)
    ('90m', '1d', '1ms', '0s')
    """
    for width_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")):
        if ms and ms % width_ms == 0:
            return f"{ms // width_ms}{unit}"
    return f"{ms}ms" if ms else "0s"
