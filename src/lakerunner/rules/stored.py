"""A materialization rule as the index stores it: a JSON document, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakerunner.model.compute import Compute
from lakerunner.model.errors import Bug
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import metric_match


def to_document(rule: Materialize) -> dict[str, Any]:
    """
    >>> rule = Materialize("errors", "logs", '{app="a"}', ("app",))
    >>> from_document("errors", to_document(rule)) == rule
    True
    """
    # The index asks which segments may have the metric that a rule reads.
    metric = {"metric": metric_match(rule).metric} if rule.signal == "metrics" else {}
    return {
        **metric,
        "signal": rule.signal,
        "match": rule.match,
        "dimensions": list(rule.dimensions),
        "compute": str(rule.compute),
        "field": rule.field,
        "max_series": rule.max_series,
        "labels": dict(sorted(rule.labels.items())),
    }


def from_document(name: str, document: Mapping[str, Any]) -> Materialize:
    try:
        return Materialize(
            name=name,
            signal=document["signal"],
            match=document["match"],
            dimensions=tuple(document["dimensions"]),
            compute=Compute(document["compute"]),
            field=document["field"],
            max_series=int(document["max_series"]),
            labels=dict(document["labels"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Bug(f"cannot read the stored rule {name}: {type(error).__name__}: {error}") from None
