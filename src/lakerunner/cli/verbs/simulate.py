"""`lakerunner simulate`: days of many orgs in minutes, through the real stages, with an exact count of every row."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from lakerunner.cli.progress import progress_line
from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput
from lakerunner.model.time import NS_PER_DAY

_ALL = "logs,metrics,traces"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@verb
def simulate(
    cli: Cli,
    days: Annotated[int, typer.Option(min=1, max=366, help="Simulated days; the last one is yesterday.")] = 2,
    orgs: Annotated[int, typer.Option(min=1, max=10_000, help="Orgs that send.")] = 3,
    objects_per_day: Annotated[
        int, typer.Option(min=1, max=86_400, help="Raw objects per day, for each org and signal.")
    ] = 48,
    rows_per_object: Annotated[
        int, typer.Option(min=1, max=100_000, help="Log records, samples or spans in each raw object.")
    ] = 20,
    objects_per_item: Annotated[
        int,
        typer.Option(
            min=1, max=2_000, help="Raw objects that share a work item. In real time, objects minutes apart do not."
        ),
    ] = 1,
    signals: Annotated[str, typer.Option(help="Signals to send, separated by commas.")] = _ALL,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed sends the same rows.")] = 0,
    quiet: Annotated[
        float, typer.Option(min=0.5, help="Seconds without work after which the lake counts as settled.")
    ] = 5.0,
    send_for: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=1, help="Seconds after which no further hours are sent.", show_default="all days"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which the simulation is given up.")] = 3_600.0,
    keep: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Empty folder for the simulated lake, to look at it later.", show_default="deleted"),
    ] = None,
) -> int:
    """Send simulated days of many orgs through the real stages, and print what became of them as JSON.

    The lake is the simulation's own, in a folder. Every row is numbered and counted at the end: rows sent, live and
    distinct must be equal, or the exit code is 1. Also printed: segments per org and day by level and tier, write
    amplification, the sizes of the index, and how long it takes to look segments up. Settings of the stages are given
    as usual, for example --set pipeline.jobs=4.
    """
    from lakerunner.model.signals import signal_named
    from lakerunner.ops.simulate.deployment import simulated_settings
    from lakerunner.ops.simulate.run import simulate as run
    from lakerunner.ops.simulate.workload import Workload
    from lakerunner.runtime.telemetry import configure_telemetry

    chosen = tuple(dict.fromkeys(signal_named(name.strip()).name for name in signals.split(",")))
    start_ns = (time.time_ns() // NS_PER_DAY - days) * NS_PER_DAY
    workload = Workload(days, orgs, objects_per_day, rows_per_object, chosen, seed, start_ns)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise BadInput(f"cannot simulate in {keep}: it is not empty", hint="name a new folder", where="--keep")
    for number in (signal.SIGINT, signal.SIGTERM):
        # Raised in the main thread, which then stops the roles, Spark and the index of the simulation.
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="lakerunner-simulate-", ignore_cleanup_errors=True) as folder:
        settings = simulated_settings(cli.settings, keep or Path(folder), objects_per_item)
        configure_telemetry("simulate", settings)
        with progress_line() as progress:
            facts = run(settings, workload, send_s=send_for, quiet_s=quiet, timeout_s=timeout, progress=progress)
    cli.output.document(facts)
    return 0 if facts["exact"] else 1
