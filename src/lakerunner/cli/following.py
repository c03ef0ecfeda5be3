"""Follows a live tail, and begins it again where it broke off: a tail ends with its server, and after an hour."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from lakerunner.cli.log_output import Entry
from lakerunner.cli.querying import stream_error
from lakerunner.cli.render import warn
from lakerunner.model.errors import Unavailable
from lakerunner.model.time import NS_PER_MS

Tail = Callable[[Mapping[str, object]], Iterator[tuple[str, Any]]]

#: A tail that ended is begun again so long before its newest entry, because entries do not arrive in order of time.
_OVERLAP_MS = 30_000
#: Entries that are remembered, so that none is shown again, and that are asked for when a tail is begun again.
_REMEMBERED = 20_000
#: An error that comes sooner would come again. Only the age of a tail ends one later.
_SOON_S = 60.0
_PAUSE_S = 2.0


def follow(tail: Tail, body: Mapping[str, object], pause_s: float = _PAUSE_S) -> Iterator[Entry]:
    """Yield entries without an end, each once. Errors of the first tail are raised, also if nobody answers."""
    shown: deque[bytes] = deque(maxlen=_REMEMBERED)
    first_ns, newest_ns, repeats, is_first, is_said = 0, 0, Counter[bytes](), True, False
    while True:
        began_s = time.monotonic()
        try:
            for kind, data in tail(body):
                is_first, is_said = False, False
                if kind == "result":
                    key = orjson.dumps(
                        (data["timestampNs"], data["message"], data["tags"]), option=orjson.OPT_SORT_KEYS
                    )
                    if repeats[key]:
                        repeats[key] -= 1
                        continue
                    shown.append(key)
                    time_ns = int(data["timestampNs"])
                    first_ns, newest_ns = first_ns or time_ns, max(newest_ns, time_ns)
                    yield Entry(time_ns, data["message"], data["tags"])
                elif kind == "dropped":
                    warn(f"{data['entries']:,} entries were dropped: they came faster than they were read")
                elif kind == "error":
                    if time.monotonic() - began_s < _SOON_S:
                        raise stream_error(data)
                    break
                elif kind == "done":
                    return
            else:
                warn("the connection was lost; it goes on as soon as the API answers")
                is_said = True
        except Unavailable as error:
            if is_first:
                raise
            if not is_said:
                warn(f"{error.message}; it goes on as soon as the API answers")
                is_said = True
        time.sleep(pause_s)
        if newest_ns:
            # Not before the first entry: what was stored before it was not wanted.
            start_ms = max(newest_ns // NS_PER_MS - _OVERLAP_MS, first_ns // NS_PER_MS)
            body = {**body, "s": start_ms, "limit": _REMEMBERED}
            repeats = Counter(shown)
