"""The conformance scripts, Prometheus' own and ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.components.missing import missing
from tests.query.promqltest.runner import run_script

_HERE = Path(__file__).parent


def _upstream() -> Path | None:
    """Prometheus' scripts are beside the repository, not in it."""
    named = os.environ.get("LAKERUNNER_TEST_PROMQLTEST")
    if named:
        return Path(named)
    for parent in _HERE.parents:
        if (parent / "shared" / "promqltest").is_dir():
            return parent / "shared" / "promqltest"
    return None


def _scripts(folder: Path | None) -> list[Path]:
    return sorted(folder.glob("*.test")) if folder is not None else []


def _run(path: Path) -> None:
    failures = [outcome for outcome in run_script(path) if outcome.failure is not None]
    assert not failures, "\n".join(f"{path}:{one.line}: {one.expr}\n  {one.failure}" for one in failures)


def test_the_upstream_scripts_are_there() -> None:
    if not _scripts(_upstream()):
        message = "Prometheus' test scripts are not there: set LAKERUNNER_TEST_PROMQLTEST to their folder"
        missing(message)


@pytest.mark.parametrize("path", _scripts(_upstream()), ids=lambda path: path.stem)
def test_upstream_script(path: Path) -> None:
    _run(path)


@pytest.mark.parametrize("path", _scripts(_HERE / "cases"), ids=lambda path: path.stem)
def test_own_script(path: Path) -> None:
    assert list(run_script(path)), "a script without evals checks nothing"
    _run(path)
