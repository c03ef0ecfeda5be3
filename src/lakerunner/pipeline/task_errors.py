"""What goes wrong in a task on an executor, as an error that concerns its own item and no other."""

from __future__ import annotations

import traceback
from pathlib import Path

from lakerunner.model.errors import Bug, LakeError, LimitHit


def task_error(error: Exception, what: str) -> LakeError:
    """The error of a task that could not do `what`. One that nobody expected is a Bug that names its place.

    >>> str(task_error(MemoryError(), "merge the item"))
    'cannot merge the item: the task is out of memory'
    """
    if isinstance(error, LakeError):
        return error
    if isinstance(error, MemoryError):
        return LimitHit(f"cannot {what}: the task is out of memory")
    place = traceback.extract_tb(error.__traceback__)[-1]
    return Bug(f"cannot {what}: {type(error).__name__}: {error}", where=f"{Path(place.filename).name}:{place.lineno}")
