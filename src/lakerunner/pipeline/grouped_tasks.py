"""Runs the tasks of several items as one job, such that a task that dies fails its own item only."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from lakerunner.model.errors import LakeError, Unavailable


class Result(Protocol):
    """What a task reports."""

    @property
    def item_id(self) -> uuid.UUID: ...
    @property
    def error(self) -> LakeError | None: ...


T = TypeVar("T")
R = TypeVar("R", bound=Result)


def run_grouped(
    tasks: Mapping[uuid.UUID, Sequence[T]], run_tasks: Callable[[Sequence[T]], list[R]]
) -> dict[uuid.UUID, list[R] | LakeError]:
    """The results of each item, or its first error. An item without tasks is not among them.

    All tasks run in one job; when the job dies, one job per item finds the guilty one.
    """
    grouped: dict[uuid.UUID, list[R] | LakeError] = {}
    try:
        results = run_tasks([task for mine in tasks.values() for task in mine])
    except Unavailable as error:
        if len(tasks) == 1:
            return dict.fromkeys(tasks, error)
        for item_id, mine in tasks.items():
            grouped |= run_grouped({item_id: mine}, run_tasks)
        return grouped
    by_item: defaultdict[uuid.UUID, list[R]] = defaultdict(list)
    for result in results:
        by_item[result.item_id].append(result)
    for item_id, made in by_item.items():
        grouped[item_id] = next((result.error for result in made if result.error is not None), made)
    return grouped
