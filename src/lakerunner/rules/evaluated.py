"""Checks groups of recording and alerting rules before they are stored: queries, templates, limits, and cycles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakerunner.model.errors import BadInput, LakeError, LimitHit
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.definitions import Alert, Group, Record
from lakerunner.rules.evaluation.template import MAX_TEXT, check_template
from lakerunner.rules.reads import reads_of
from lakerunner.rules.render import evaluated_rules

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What an org may store and how often it may be evaluated."""

    rules_per_group: int = 1_000
    groups_per_org: int = 1_000
    least_interval_s: float = 1.0


def check_groups(groups: Sequence[Group], limits: GroupLimits, others: Iterable[Group] = ()) -> None:
    """Refuse what cannot be evaluated. `others` are the org's groups that stay, in which recorded names may be read."""
    for error in group_errors(groups, limits, others):
        raise error


def group_errors(groups: Sequence[Group], limits: GroupLimits, others: Iterable[Group] = ()) -> Iterator[LakeError]:
    """Everything that is wrong with the recording and alerting rules of these groups."""
    broken: set[int] = set()
    for group in groups:
        for rule, error in _errors_of(group, limits):
            broken.add(id(rule))
            yield error
    # A rule that cannot be read is no part of a cycle that anybody could see.
    readable = [replace(group, rules=tuple(each for each in group.rules if id(each) not in broken)) for group in groups]
    cycle = find_cycle([*readable, *others])
    if cycle:
        reason = f"{' reads '.join(cycle)}, which is a cycle"
        hint = "break it with `offset`, so that a rule reads an earlier value, or rename a rule"
        yield _error_of_cycle(readable, cycle, reason, hint)


def _error_of_cycle(groups: Iterable[Group], cycle: Sequence[str], reason: str, hint: str) -> LakeError:
    for rule in (rule for group in groups for rule in evaluated_rules(group)):
        if isinstance(rule, Record) and rule.record in cycle and rule.source is not None:
            return rule.source.error("record", f"cannot apply the rules: {reason}", hint=hint)
    return BadInput(f"cannot apply the rules: {reason}", hint=hint)


def _errors_of(group: Group, limits: GroupLimits) -> Iterator[tuple[Record | Alert | None, LakeError]]:
    """The errors of a group, each with its rule if it is one of a rule."""
    rules = evaluated_rules(group)
    if not rules:
        return
    if not group.name.isprintable() or len(group.name) > _MAX_NAME:
        yield None, BadInput(f"cannot apply the group {group.name[:50]!r}: its name is not printable or too long")
    if len(rules) > limits.rules_per_group:
        yield (
            None,
            LimitHit(
                f"cannot apply the group {group.name!r}: it has {len(rules):,} rules, more than "
                f"{limits.rules_per_group:,} (ruler.max_rules)",
                hint="split it",
            ),
        )
    if group.interval_s is not None and group.interval_s < limits.least_interval_s:
        yield (
            None,
            BadInput(
                f"cannot apply the group {group.name!r}: its interval is shorter than {limits.least_interval_s:g} s "
                "(ruler.least_interval_s)"
            ),
        )
    seen: set[tuple[object, ...]] = set()
    for rule in rules:
        for error in _errors_of_rule(group, rule):
            yield rule, error
        # As Prometheus: the same rule twice would write the same series twice.
        name = rule.record if isinstance(rule, Record) else rule.alert
        identity = (type(rule), name, rule.expr, *sorted(rule.labels.items()))
        if identity in seen:
            yield rule, _error(rule, "expr", f"the rule {name!r} is there twice in the group {group.name!r}")
        seen.add(identity)


def _errors_of_rule(group: Group, rule: Record | Alert) -> Iterator[LakeError]:
    try:
        reads_of(rule)
    except LakeError as error:
        yield error
    texts = {**group.labels, **rule.labels}
    for name in texts:
        if not _LABEL.fullmatch(name):
            yield _error(rule, "labels", f"{name!r} is no name of a label")
    fields = [("labels", texts)]
    if isinstance(rule, Alert):
        fields.append(("annotations", dict(rule.annotations)))
    for field, given in fields:
        for name, text in given.items():
            if len(text) > MAX_TEXT:
                yield _error(rule, field, f"{name!r} has more than {MAX_TEXT:,} characters")
            elif isinstance(rule, Alert):
                try:
                    check_template(text)
                except ParseError as error:
                    yield _error(rule, field, f"{name}: {error.reason}")


def _error(rule: Record | Alert, field: str, reason: str) -> LakeError:
    if rule.source is not None:
        return rule.source.error(field, reason)
    name = rule.record if isinstance(rule, Record) else rule.alert
    return BadInput(f"cannot apply the rule {name!r}: {reason}")


def find_cycle(groups: Iterable[Group]) -> list[str]:
    """Names of recording rules of which each reads the next one at its own time, the last the first; else nothing."""
    reads: dict[str, set[str]] = {}
    for group in groups:
        for rule in evaluated_rules(group):
            if isinstance(rule, Record):
                found = reads_of(rule).now
                reads.setdefault(rule.record, set()).update(found or ())
    done: set[str] = set()
    for start in reads:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(name)
                continue
            if name in path:
                return [*path[path.index(name) :], name]
            if name in done:
                continue
            path.append(name)
            stack.append((name, True))
            stack += [(each, False) for each in sorted(reads[name]) if each in reads]
    return []
