"""Names of a histogram: its own, and those of the classic series that Prometheus would have made of it."""

from __future__ import annotations

BUCKET, SUM, COUNT = "_bucket", "_sum", "_count"
CLASSIC = (BUCKET, SUM, COUNT)
#: What may follow a stored name: nothing, or a classic suffix.
VARIANTS = ("", *CLASSIC)
LE = "le"


def base_names(name: str) -> tuple[str, ...]:
    """The stored names that can answer for a name.

    >>> base_names("latency_bucket"), base_names("up")
    (('latency_bucket', 'latency'), ('up',))
    """
    return (name, *(name.removesuffix(suffix) for suffix in CLASSIC if name.endswith(suffix) and name != suffix))
