"""Run foreign code that recurses as deeply as its input says, on a thread with a very large stack if needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

#: This is address space, not memory: pages are allocated as the stack grows into them.
_STACK_BYTES = 1 << 30
#: Recursion levels that fit the stack of any thread. An extra thread costs a millisecond, much for a small object.
SHALLOW_LEVELS = 4_096
_stack_size_lock = threading.Lock()


def run_on_large_stack(call: Callable[[], Any], levels: int) -> Any:
    """Return the result of a call that may recurse `levels` deep, or raise what it raised.

    A panic in Rust code is not an Exception and would bypass all our handlers, so it becomes a ValueError.
    """
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as reason:  # noqa: BLE001 - raised again below, in the calling thread
            failures.append(reason)

    if levels <= SHALLOW_LEVELS:
        run()
    else:
        thread = threading.Thread(target=run, name="decode")
        with _stack_size_lock:
            # The size is a process-wide setting: another thread started meanwhile gets more address space, no harm.
            before = threading.stack_size(_STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
        thread.join()
    if failures:
        raise _raisable(failures[0])
    return results[0]


def _raisable(reason: BaseException) -> BaseException:
    if isinstance(reason, Exception | KeyboardInterrupt | SystemExit):
        return reason
    return ValueError(str(reason))
