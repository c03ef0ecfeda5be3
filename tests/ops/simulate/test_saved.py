"""A paused simulation goes on where it was, and only with the options of its first run."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.ops.simulate import saved
from lakerunner.ops.simulate.saved import Saved
from lakerunner.ops.simulate.workload import Workload

WORKLOAD = Workload(2, 3, 48, 5, ("logs", "traces"), 1, 10**18)


def test_progress_is_read_back(tmp_path: Path) -> None:
    assert saved.load(tmp_path / "new", WORKLOAD) == Saved(WORKLOAD)
    paused = Saved(WORKLOAD, 12, 3.5, Counter({"ingest": 7}))
    paused.save(tmp_path)
    assert saved.load(tmp_path, WORKLOAD) == paused
    # Another day may have begun in between; the simulated days stay.
    assert saved.load(tmp_path, replace(WORKLOAD, start_ns=2 * 10**18)) == paused


def test_other_options_and_other_folders_are_refused(tmp_path: Path) -> None:
    Saved(WORKLOAD, 12).save(tmp_path)
    with pytest.raises(BadInput, match="begun with other options"):
        saved.load(tmp_path, replace(WORKLOAD, orgs=4))
    saved.forget(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="not empty"):
        saved.load(tmp_path, WORKLOAD)
