"""`make bench CASE=name` runs one benchmark; without a name it lists them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NOT_CASES = {"__main__", "__init__", "cpu_share", "otlp", "peak_memory", "served"}


def cases() -> dict[str, str]:
    """Return the name of each benchmark and the first line of its docstring."""
    found = {}
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.glob("*/__init__.py")]):
        name = path.stem if path.parent == here else path.parent.name
        if name not in NOT_CASES:
            found[name] = path.read_text(encoding="utf-8").split('"""', 2)[1].splitlines()[0]
    return found


def main() -> int:
    known = cases()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        for name, sentence in known.items():
            sys.stderr.write(f"  make bench CASE={name:<14} {sentence}\n")
        return 2 if len(sys.argv) > 1 else 0
    del sys.argv[0]
    package = (Path(__file__).parent / sys.argv[0]).is_dir()
    return int(importlib.import_module(f"bench.{sys.argv[0]}{'.run' * package}").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
