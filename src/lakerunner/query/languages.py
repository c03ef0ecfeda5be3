"""The languages that there are, one line each. The module of a language is imported when it is first used."""

from __future__ import annotations

import functools
import importlib

from lakerunner.model.errors import BadInput
from lakerunner.query.language import Language

#: Name -> the module whose `LANGUAGE` it is. By name and not by import: a worker then knows no language.
MODULES = {
    "logql": "lakerunner.query.logql.language",
    "promql": "lakerunner.query.promql.language",
    "rows": "lakerunner.query.rows.language",
    "traceql": "lakerunner.query.traceql.language",
    "traceql-tags": "lakerunner.query.traceql.tag_language",
    "traces": "lakerunner.query.traces.language",
}


@functools.cache
def language(name: str) -> Language:
    module = MODULES.get(name)
    if module is None:
        raise BadInput(f"cannot answer in {name!r}: there is no such language", hint=f"there are {', '.join(MODULES)}")
    found: Language = importlib.import_module(module).LANGUAGE
    return found
