"""Rules of the catalog as queries see them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.signals import TRACES
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.spans import canonical_field, label_of

#: The rules of orgs as they were last asked for, by the identity of the tuple that is held beside them.
_KNOWN: dict[int, tuple[Sequence[StoredRule], tuple[RuleVersion, ...]]] = {}
_MAX_KNOWN = 1_024


def rule_versions(stored: Sequence[StoredRule]) -> tuple[RuleVersion, ...]:
    """The rules of the catalog that this release knows; the same tuple for the same tuple."""
    if not isinstance(stored, tuple):
        return tuple(found for rule in stored if (found := rule_version(rule)) is not None)
    known = _KNOWN.get(id(stored))
    if known is None or known[0] is not stored:
        if len(_KNOWN) >= _MAX_KNOWN:
            _KNOWN.clear()
        versions = tuple(found for rule in stored if (found := rule_version(rule)) is not None)
        known = _KNOWN[id(stored)] = stored, versions
    return known[1]


def rule_version(stored: StoredRule) -> RuleVersion | None:
    """The rule; None if this release does not know what it computes."""
    about = stored.definition
    is_trace = stored.signal == TRACES.name
    try:
        field = str(about.get("field", ""))
        return RuleVersion(
            rule_id=stored.rule_id,
            version=stored.version,
            name=stored.name,
            signal=stored.signal,
            match=str(about["match"]),
            dimensions=tuple(
                (_canonical(name), label_of(name)) if is_trace else (name, name) for name in about["dimensions"]
            ),
            compute=Compute(about["compute"]),
            field=_canonical(field) if is_trace and field else field,
            static_labels=tuple(sorted(about.get("labels", {}).items())),
            stored=stored,
        )
    except (KeyError, ValueError, LakeError):
        return None


_canonical = lru_cache(maxsize=4096)(canonical_field)
