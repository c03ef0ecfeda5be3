"""What a driver of ingest knows of attribute types: tasks get it, and the index decides on columns that are new."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.index.attribute_types import MAX_COLUMNS, record_types, recorded_types
from lakerunner.index.database import Database


class TypeRegistry:
    """Keeps what it read, since a recorded type never changes. Safe for several threads: at worst one forgets a column
    that another added, and asks the index again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._types: dict[tuple[uuid.UUID, str], AttributeTypes] = {}

    def types_of(self, org_id: uuid.UUID, signal: str) -> AttributeTypes:
        known = self._types.get((org_id, signal))
        if known is None:
            with self._database.transaction() as tx:
                recorded = recorded_types(tx, org_id, signal)
            known = self._types[org_id, signal] = AttributeTypes(recorded, len(recorded) >= MAX_COLUMNS)
        return known

    def agrees(self, org_id: uuid.UUID, signal: str, added: Sequence[Mapping[str, str]]) -> bool:
        """Record the columns that tasks added. Return False if one of them must have another type, or be none.

        Then the tasks must run again: with what `types_of` now returns, they write what is recorded.
        """
        proposed: dict[str, str] = {}
        for columns in added:
            proposed = {**columns, **proposed}
        if not proposed:
            return True
        with self._database.transaction() as tx:
            recorded = record_types(tx, org_id, signal, proposed)
        known = self.types_of(org_id, signal)
        is_full = known.is_full or len(recorded) < len(proposed)
        self._types[org_id, signal] = AttributeTypes({**known.known, **recorded}, is_full)
        return all(recorded.get(name) == kind for columns in added for name, kind in columns.items())
