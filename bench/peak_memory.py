"""The peak of a process's resident memory.

`getrusage` is no use for it: a process that another started has at least the peak of that one there.
"""

from __future__ import annotations

import re
from pathlib import Path


def peak_bytes() -> int:
    """Of this process, since it began."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
