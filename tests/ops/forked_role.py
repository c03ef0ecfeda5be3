"""A role for tests of the fork server: says what it is, and ends with code 7 or, named `sleep`, waits to be killed."""

from __future__ import annotations

import os
import signal
import sys

import orjson


def main() -> int:
    document = {
        "argv": sys.argv,
        "env": dict(os.environ),
        "parent": os.getppid(),
        "session": os.getsid(0) == os.getpid(),
    }
    sys.stdout.write(orjson.dumps(document).decode() + "\n")
    sys.stdout.flush()
    if sys.argv[1] == "sleep":
        signal.pause()
    return 7
