"""What a vectorised form of a function takes and gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from lakerunner.query.logql.stages.template.columns import Column, Texts

#: Takes columns, of which at least one is not constant. Gives None where it has no form for them.
Vectorised: TypeAlias = Callable[..., Column | None]


def on_values(texts: Texts, change: Callable[[pa.StringArray], pa.Array | None]) -> Column | None:
    """The change of a text, for each value of the dictionary if there is one."""
    array = texts.array
    if pa.types.is_dictionary(array.type):
        changed = change(array.dictionary)
        return None if changed is None else Texts(pa.DictionaryArray.from_arrays(array.indices, changed))
    changed = change(array)
    return None if changed is None else Texts(changed)
