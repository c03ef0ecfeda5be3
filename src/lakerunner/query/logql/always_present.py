"""Labels that every entry has once the stages of a pipeline have run, maybe with an empty value.

A series of metrics cannot have an empty label. Whoever answers a log query from metrics can add those labels again
that every entry has.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR


def always_present(stages: Iterable[ast.Stage]) -> frozenset[str]:
    """The labels that every entry has on which no stage failed.

    >>> from lakerunner.query.logql.parser import parse
    >>> def found(pipeline: str) -> list[str]:
    ...     return sorted(always_present(parse('{app="a"} ' + pipeline).stages))
    >>> found('| json a="x.y", b="z" | drop b | label_format c=`{{.d}}`'), found('| json | regexp "(?P<a>.)"')
    (['a', 'c'], [])
    >>> found('| json a="x" | label_format b=a'), found('| json a="x", b="y" | keep a'), found('| drop a | json a="x"')
    (['b'], ['a'], [])
    """
    found: set[str] = set()
    #: Whether entries may have lost labels. A field with the name of a lost label becomes another label.
    lost = False
    for stage in stages:
        match stage:
            case ast.Json(extractions=extractions) | ast.Logfmt(extractions=extractions):
                found |= {each.label for each in extractions if not lost}
            case ast.LabelFormat(assignments=assignments):
                lost |= any(not each.is_template for each in assignments)
                _format(assignments, found)
            case ast.Drop(choices=choices):
                if any(each.label == ERROR for each in choices):
                    # Lines that a parser failed on, and that have none of its labels, are now like others.
                    return frozenset()
                lost = True
                found -= {each.label for each in choices}
            case ast.Keep(choices=choices):
                lost = True
                found &= {each.label for each in choices if each.matcher is None}
            case _:
                pass
    return frozenset(found)


def _format(assignments: Iterable[ast.Assignment], found: set[str]) -> None:
    for each in assignments:
        if each.is_template or each.value in found:
            found.add(each.label)
        if not each.is_template:
            found.discard(each.value)
