"""Every function that a template may call: Go's builtins, and those that Loki registers."""

from __future__ import annotations

from lakerunner.query.logql.stages.template.functions import numbers, regexps, texts, times, values
from lakerunner.query.logql.stages.template.functions.signature import Function

LINE, TIMESTAMP = "__line__", "__timestamp__"


def _of_entry() -> None:
    """Stands for `__line__` and `__timestamp__`, which the interpreter reads from the entry."""


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        *texts.FUNCTIONS,
        *regexps.FUNCTIONS,
        *numbers.FUNCTIONS,
        *times.FUNCTIONS,
        *values.FUNCTIONS,
        Function(LINE, (), _of_entry),
        Function(TIMESTAMP, (), _of_entry),
    )
}
