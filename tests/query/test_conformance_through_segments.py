"""The PromQL conformance scripts, with every loaded series written as real segments and read back through the lake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.query.promql.memory_source import MemorySource
from lakerunner.query.promql.source import SeriesSource
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import LakeOfSeries, lake_of_series
from tests.query.promqltest.runner import run_script

_FOLDERS = (os.environ.get("LAKERUNNER_PROMQLTEST", ""), "/work/shared/promqltest")

#: Beyond all samples of the scripts: one lookup serves all selectors of a script's part.
_LATEST_MS = 1 << 44


def _scripts() -> list[Path]:
    for folder in filter(None, _FOLDERS):
        if found := sorted(Path(folder).glob("*.test")):
            return found
    return []


@pytest.fixture(scope="module")
def lake(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeOfSeries]:
    url = postgres_server.new_database()
    with lake_of_series(tmp_path_factory.mktemp("lake"), url) as lake:
        yield lake
    postgres_server.drop_database(url)


@pytest.mark.slow
@pytest.mark.parametrize("script", _scripts(), ids=lambda path: path.stem)
def test_script(script: Path, lake: LakeOfSeries) -> None:
    def factory(loaded: MemorySource) -> SeriesSource:
        source = lake.lake.source(lake.write(loaded))
        source.look_up(0, _LATEST_MS)
        return source

    outcomes = list(run_script(script, factory))
    failures = [f"{one.line}: {one.expr}\n    {one.failure}" for one in outcomes if one.failure]
    assert outcomes or "\neval" not in script.read_text()
    assert not failures, "\n" + "\n".join(failures)
