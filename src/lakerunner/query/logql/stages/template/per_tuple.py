"""Execute a template once for each distinct tuple of what it reads: for templates without a column form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import Check, Entries, encoded
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Distinct,
    Formatted,
    Numbers,
    Texts,
    raw_texts,
    tuples_of,
)
from lakerunner.query.logql.stages.template.frames import label_texts
from lakerunner.query.logql.stages.template.go_types import Labels, Value
from lakerunner.query.logql.stages.template.interpreter import Entry, TemplateError, execute
from lakerunner.query.logql.stages.template.limits import Meter, check_batch
from lakerunner.query.logql.stages.template.nodes import Template
from lakerunner.query.logql.stages.template.reads import reads


def interpreted(template: Template, name: str, entries: Entries, check: Check) -> Formatted:
    wanted = reads(template)
    # With all labels as one value, an empty label and a missing one differ.
    names = entries.names() if wanted.labels is None else sorted(wanted.labels)
    columns: list[Column] = [
        _optional(entries, each) if wanted.labels is None else label_texts(entries, each) for each in names
    ]
    columns.append(Texts(entries.lines) if wanted.line else Constant(""))
    columns.append(Numbers(entries.times_ns, "int") if wanted.time else Constant(0))
    codes, found = tuples_of(columns, len(entries))
    texts: list[str] = []
    errors: list[str | None] = []
    size = 0
    meter = Meter(check)
    for values in found:
        labels = Labels({each: value for each, value in zip(names, values, strict=False) if value is not None})
        try:
            texts.append(execute(template, name, Entry(labels, values[-2], values[-1]), meter))
            errors.append(None)
        except TemplateError as reason:
            texts.append("")
            errors.append(str(reason))
        size += len(texts[-1])
        check_batch(size)
    failed = any(error is not None for error in errors)
    return Formatted(raw_texts(codes, texts), pa.array(errors, pa.string()).take(pa.array(codes)) if failed else None)


def _optional(entries: Entries, name: str) -> Column:
    array = entries.label(name)
    assert array is not None
    dictionary = encoded(array)
    values: list[Value] = [*dictionary.dictionary.to_pylist(), None]
    codes = dictionary.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    return Distinct(codes.astype(np.int64), values)
