"""The PromQL conformance scripts, with every loaded series written as real segments and read back through the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.memory_source import MemorySource
from tests.query.lake_of_series import LakeOfSeries
from tests.query.promql.test_conformance import _scripts, _upstream
from tests.query.promqltest.runner import run_script

#: Beyond all samples of the scripts: one lookup serves all selectors of a script's part.
_LATEST_MS = 1 << 42
_HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("script", _scripts(_upstream()), ids=lambda path: path.stem)
def test_upstream_script(script: Path, lake: LakeOfSeries) -> None:
    _run(script, lake, None)


@pytest.mark.parametrize("script", _scripts(_HERE / "promql" / "cases"), ids=lambda path: path.stem)
def test_own_script(script: Path, lake: LakeOfSeries) -> None:
    assert _run(script, lake, None)


@pytest.mark.parametrize("script", _scripts(_HERE / "cases_classic"), ids=lambda path: path.stem)
def test_classic_series_of_histograms(script: Path, lake: LakeOfSeries) -> None:
    assert _run(script, lake, "cumulative")


def _run(script: Path, lake: LakeOfSeries, temporality: str | None) -> int:
    def factory(loaded: MemorySource) -> SeriesSource:
        source = lake.lake.query(lake.write(loaded, temporality=temporality))
        source.prepare([Leaf.of_samples((), 0, _LATEST_MS)])
        return source

    outcomes = list(run_script(script, factory))
    failures = [f"{one.line}: {one.expr}\n    {one.failure}" for one in outcomes if one.failure]
    assert not failures, "\n" + "\n".join(failures)
    return len(outcomes)
