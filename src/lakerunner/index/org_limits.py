"""Limits of one org that differ from the settings. They are stored in the index and apply without a restart."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings import LimitSettings

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

LIMIT_NAMES: tuple[str, ...] = tuple(LimitSettings.model_fields)


def read_limits(tx: Connection, org_id: uuid.UUID) -> dict[str, float]:
    """Return the limits set for the org. Names that this release does not know are skipped."""
    rows = tx.execute("SELECT name, value FROM org_limit WHERE org_id = %s", [org_id]).fetchall()
    found = {row["name"]: row["value"] for row in rows if row["name"] in LIMIT_NAMES}
    return {name: checked(name, found[name]) for name in LIMIT_NAMES if name in found}


def set_limits(tx: Connection, org_id: uuid.UUID, limits: Mapping[str, float | str]) -> None:
    """Set all limits, or none when one is wrong."""
    values = {name: checked(name, value) for name, value in limits.items()}
    for name, value in values.items():
        tx.execute(
            "INSERT INTO org_limit (org_id, name, value) VALUES (%s, %s, %s)"
            " ON CONFLICT (org_id, name) DO UPDATE SET value = excluded.value, set_at = now()",
            [org_id, name, value],
        )


def unset_limits(tx: Connection, org_id: uuid.UUID, names: Sequence[str]) -> None:
    """Remove limits, so that the settings apply again."""
    for name in names:
        _known(name)
    tx.execute("DELETE FROM org_limit WHERE org_id = %s AND name = ANY(%s)", [org_id, list(names)])


def checked(name: str, value: float | str) -> float:
    """Validate the value like the setting of the same name."""
    _known(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        limits = LimitSettings.model_validate({name: value})
    except ValidationError as reason:
        problem = reason.errors()[0]["msg"]
        raise BadInput(
            f"cannot set the limit {name} to {str(value)[:50]!r}: {problem[:1].lower()}{problem[1:]}",
            hint="give a number, as in max_series=10000",
        ) from None
    taken: float = getattr(limits, name)
    return taken


def _known(name: str) -> None:
    if name in LIMIT_NAMES:
        return
    near = difflib.get_close_matches(name, LIMIT_NAMES, 1)
    hint = f"did you mean {near[0]}?" if near else f"known limits: {', '.join(LIMIT_NAMES)}"
    raise BadInput(f"cannot find a limit named {name[:50]!r}", hint=hint)
