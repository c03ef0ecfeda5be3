"""Every row keeps the label of its keys, however many tables with other spellings are joined."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.read import read_object
from lakerunner.formats.spelling import spelled_rows
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.labels import attribute_column, loki_label
from lakerunner.model.signals import LOGS

_KEYS = st.sampled_from(["tier", "TIER", "Tier", "a.b", "A_b", "a..b"])
_TABLES = st.lists(st.lists(st.lists(_KEYS, max_size=1), min_size=1, max_size=3), min_size=1, max_size=4)


def table_of(records: list[list[str]]) -> pa.Table:
    logs = [
        {"timeUnixNano": "1", "attributes": [{"key": key, "value": {"stringValue": key}} for key in keys]}
        for keys in records
    ]
    request: dict[str, Any] = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
    return read_object(orjson.dumps(request), LOGS, "x.json").tables[""]


@settings(max_examples=60, deadline=None)
@given(_TABLES, st.booleans())
def test_the_label_of_each_row_is_known(tables: list[list[list[str]]], in_steps: bool) -> None:
    parts = [table_of(records) for records in tables]
    if in_steps:
        parts = [unify_tables(parts[:2], LOGS.rows), *parts[2:]]
    joined = unify_tables(parts, LOGS.rows)
    keys = keys_of(joined.schema)
    spelled = spelled_rows(joined.column("spelled_keys").combine_chunks())
    for row, sent in enumerate(keys for records in tables for keys in records):
        for key in sent:
            column = attribute_column("attr", key)
            assert joined.column(column)[row].as_py() == key
            unusual = [each for each, rows in spelled.get(column, {}).items() if rows[row]]
            assert loki_label((unusual or keys[column])[0]) == loki_label(key)


def test_foreign_documents_name_no_keys() -> None:
    assert spelled_rows(pa.array(["{", "[]", "5", '{"attr_a": 1}', None])) == {}
