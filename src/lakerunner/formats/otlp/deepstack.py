"""Run a call on a thread with a very large stack: for foreign code whose recursion the input decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

#: Address space, not memory: pages are allocated as the stack grows into them.
_STACK_BYTES = 1 << 30
_stack_size_lock = threading.Lock()


def on_deep_stack(call: Callable[[], Any]) -> Any:
    """The result of the call, or what it raised (also a panic of Rust code, which is no Exception) as a ValueError."""
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as reason:  # noqa: BLE001 - raised again below, in the thread that asked
            failures.append(reason)

    thread = threading.Thread(target=run, name="decode")
    with _stack_size_lock:
        # The size is a setting of the process: whoever starts a thread in between gets more address space, no harm.
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failures:
        raise failures[0] if isinstance(failures[0], Exception) else ValueError(str(failures[0]))
    return results[0]
