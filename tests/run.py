"""The test command: `python -m tests.run [arguments of pytest]`.

On busy cores a test may fail because something took too long. A few tests that failed run again, alone and one after
the other. One that fails again fails the run; one that passes is named at the end, so that it is noticed and mended.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components.process import RunningProcess

_ROOT = Path(__file__).parents[1]
#: More failures than this are not an accident.
_FEW = 10


class _Failures:
    """Collects the ids of tests that failed, from every process of the run."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.ids:
            self.ids.append(report.nodeid)


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's exit code."""
    failures = _Failures()
    install = [sys.executable, "-m", "tests.components.install"]
    with RunningProcess.start(install, log_path=_ROOT / ".cache" / "install.log", cwd=_ROOT):
        code = pytest.main(arguments, plugins=[failures])
    ids = [re.sub(r"@[^\]@]*$", "", each) for each in failures.ids]  # Without the group that xdist appends.
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(ids) <= _FEW:
        return int(code)
    sys.stdout.write(f"\n{len(ids)} failed; each is tried once more, alone:\n\n")
    sys.stdout.flush()
    alone = {each: subprocess.run([sys.executable, "-m", "pytest", "-n0", "-q", each], check=False) for each in ids}
    for each, run in alone.items():
        sys.stdout.write(f"{'FAILED TWICE' if run.returncode else 'FLAKY, please mend it'}: {each}\n")
    return int(any(run.returncode for run in alone.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
