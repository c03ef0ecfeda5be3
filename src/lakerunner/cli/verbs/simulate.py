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
from lakerunner.model.time import NS_PER_DAY, NS_PER_S
from lakerunner.runtime.exit_code import EXIT_RECYCLED

_ALL = "logs,metrics,traces"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@verb
def simulate(
    cli: Cli,
    days: Annotated[
        int,
        typer.Option(min=1, max=366, help="Simulated days. The last is over for so long that its hours are merged."),
    ] = 2,
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
    pause_after: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            min=1,
            help="Seconds after which the run ends; repeat the command to go on. Needs --keep.",
            show_default="never",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which the simulation is given up.")] = 3_600.0,
    keep: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Folder for the simulated lake, to look at it later: empty, or that of a run that paused.",
            show_default="deleted",
        ),
    ] = None,
) -> int:
    """Send simulated days of many orgs through the real stages, and print what became of them as JSON.

    The lake is the simulation's own, in a folder. Every row is numbered and counted at the end: rows sent, live and
    distinct must be equal, or the exit code is 1. Also printed: segments per org and day by level and tier, write
    amplification, the sizes of the index, and how long it takes to look segments up. Settings of the stages are given
    as usual, for example --set pipeline.jobs=4.

    A long simulation can be made of several runs, with --keep and --pause-after: a run that pauses prints how far it
    is, and its exit code is 75 until the last one.
    """
    from lakerunner.model.signals import signal_named
    from lakerunner.ops.simulate import saved
    from lakerunner.ops.simulate.deployment import simulated_settings
    from lakerunner.ops.simulate.run import Patience
    from lakerunner.ops.simulate.run import simulate as run
    from lakerunner.ops.simulate.workload import Workload
    from lakerunner.runtime.telemetry import configure_telemetry

    if pause_after is not None and keep is None:
        raise BadInput("cannot pause the simulation: its lake is not kept", hint="name a folder with --keep")
    chosen = tuple(dict.fromkeys(signal_named(name.strip()).name for name in signals.split(",")))
    # The hours of the last day are merged already.
    over_ns = time.time_ns() - int(cli.settings.pipeline.compact_day_age_s * NS_PER_S)
    start_ns = (over_ns // NS_PER_DAY - days) * NS_PER_DAY
    workload = Workload(days, orgs, objects_per_day, rows_per_object, chosen, seed, start_ns)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Raised in the main thread, which then stops the roles, Spark and the index of the simulation.
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="lakerunner-simulate-", ignore_cleanup_errors=True) as temporary:
        folder = keep or Path(temporary)
        before = saved.load(folder, workload)
        # A run that is killed cannot be continued: what it sent is not known.
        saved.forget(folder)
        settings = simulated_settings(cli.settings, folder, objects_per_item)
        configure_telemetry("simulate", settings)
        with progress_line() as progress:
            found = run(settings, before, Patience(send_for, pause_after, quiet, timeout), progress)
        if isinstance(found, saved.Saved):
            found.save(folder)
            cli.output.document({"paused": True, "sent_days": round(found.hours / 24, 2), "days": days})
            return EXIT_RECYCLED
    cli.output.document(found)
    return 0 if found["exact"] else 1
