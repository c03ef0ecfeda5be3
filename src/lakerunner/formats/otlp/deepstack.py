"""Run foreign code whose recursion the input decides: on a thread with a very large stack, where that may be needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

#: Address space, not memory: pages are allocated as the stack grows into them.
_STACK_BYTES = 1 << 30
#: Levels that fit any thread's stack. A thread of its own costs a millisecond, much for a small object.
_SHALLOW_LEVELS = 4_096
_stack_size_lock = threading.Lock()


def on_deep_stack(call: Callable[[], Any], levels: int) -> Any:
    """The result of a call that may recurse as deep as that, or what it raised.

    A panic of Rust code is no Exception, so that it would pass every handler of ours: it becomes a ValueError.
    """
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as reason:  # noqa: BLE001 - raised again below, in the thread that asked
            failures.append(reason)

    if levels <= _SHALLOW_LEVELS:
        run()
    else:
        thread = threading.Thread(target=run, name="decode")
        with _stack_size_lock:
            # The size is a setting of the process: whoever starts a thread meanwhile gets more address space, no harm.
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
