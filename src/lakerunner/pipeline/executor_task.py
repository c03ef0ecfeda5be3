"""What the tasks of all stages share on an executor: errors that concern one item alone, and stores that stay open."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from lakerunner.model.errors import Bug, LakeError, LimitHit
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

R = TypeVar("R")


def run_alone(what: str, run: Callable[[], R], failed: Callable[[LakeError], R], *, release_memory: bool = False) -> R:
    """Run a task. Whatever it raises becomes the error of its result, so that it does not end the job of all items.

    With `release_memory`, memory goes back to the system: the process lives on, and the next task may be small.
    """
    try:
        return run()
    except Exception as error:  # noqa: BLE001  an error of ours in one item must not end the job of all
        return failed(task_error(error, what))
    finally:
        if release_memory:
            pa.default_memory_pool().release_unused()


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


@lru_cache(maxsize=32)
def open_for_tasks(config: StoreConfig) -> ObjectStore:
    """One store per config and process: workers live long, and connections are worth keeping."""
    try:
        return open_store(config)
    except LakeError as error:
        # A wrong setting of a bucket is not the fault of the objects in it.
        raise StoreUnavailable(error.message, hint=error.hint, where=config.url) from None
