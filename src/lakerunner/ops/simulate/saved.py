"""How far a simulation is, kept in its folder between runs: a long one can be made of several runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lakerunner.model.errors import BadInput
from lakerunner.ops.simulate.workload import Workload

_NAME = "simulation.json"


@dataclass(frozen=True, slots=True)
class Saved:
    workload: Workload
    #: Simulated hours that were sent.
    hours: int = 0
    #: Seconds that all runs took.
    run_s: float = 0.0
    #: Bytes of segments that each stage has committed.
    written: Counter[str] = field(default_factory=Counter)

    def save(self, folder: Path) -> None:
        document = {"hours": self.hours, "run_s": self.run_s, "written": dict(self.written)}
        (folder / _NAME).write_text(json.dumps({"workload": asdict(self.workload), **document}))


def load(folder: Path, workload: Workload) -> Saved:
    """What an earlier run in the folder saved, or a new beginning if it is empty."""
    path = folder / _NAME
    if not folder.exists() or not any(folder.iterdir()):
        return Saved(workload)
    if not path.exists():
        raise BadInput(
            f"cannot simulate in {folder}: it is not empty, and no simulation was paused there",
            hint="name a new folder",
            where="--keep",
        )
    document = json.loads(path.read_text())
    document["workload"]["signals"] = tuple(document["workload"]["signals"])
    before = Workload(**document["workload"])
    # The days of a simulation are fixed by its first run.
    if replace(workload, start_ns=before.start_ns) != before:
        raise BadInput(
            f"cannot continue the simulation in {folder}: it was begun with other options",
            hint="repeat the command with the options of the first run, or name a new folder",
            where="--keep",
        )
    return Saved(before, document["hours"], document["run_s"], Counter(document["written"]))


def forget(folder: Path) -> None:
    """Forget the progress: all days are sent and counted."""
    (folder / _NAME).unlink(missing_ok=True)
