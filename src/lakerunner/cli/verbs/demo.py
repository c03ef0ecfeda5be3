"""`lakerunner demo`: write the telemetry of a small shop into the raw bucket, as a collector would."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Annotated

import typer

from lakerunner.cli.progress import progress_line
from lakerunner.cli.verb import Cli, verb
from lakerunner.model.time import NS_PER_S, parse_duration_s
from lakerunner.runtime.stop import Stop


@verb
def demo(
    cli: Cli,
    rate: Annotated[
        float | None,
        typer.Option(min=1, help="Log records per second; spans and metrics follow.", show_default="demo.rate"),
    ] = None,
    past: Annotated[
        str, typer.Option(help="Write this much of the past, such as 1h, and exit.", show_default="live, until Ctrl-C")
    ] = "",
    seed: Annotated[
        int | None, typer.Option(help="Random seed. The same seed gives the same shop.", show_default="demo.seed")
    ] = None,
) -> None:
    """Write logs, metrics and traces of a small shop into the raw bucket, with errors, slow spans and deploys."""
    from lakerunner.demo.produce import Sent, backfill, live
    from lakerunner.store.config import StoreConfig
    from lakerunner.store.open import open_store

    rate = cli.settings.demo.rate if rate is None else rate
    seed = cli.settings.demo.seed if seed is None else seed
    store = open_store(StoreConfig.of(cli.settings))
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.request())
    seen: Counter[str] = Counter()
    with progress_line() as line:

        def show(sent: Sent) -> None:
            seen[sent.signal] += sent.records
            line(", ".join(f"{count:,} {name}" for name, count in sorted(seen.items())))

        if past:
            # Backfill objects cover whole slots. Start on a whole minute, so that a second run writes the same keys.
            end_ns = time.time_ns() // (60 * NS_PER_S) * 60 * NS_PER_S
            start_ns = end_ns - round(parse_duration_s(past) * NS_PER_S)
            tally = backfill(store, start_ns, end_ns, rate, seed=seed, progress=show, stop=stop)
        else:
            tally = live(store, rate, stop, seed=seed, progress=show)
    counts = ", ".join(f"{tally.records[name]:,} {name} in {tally.objects[name]:,} objects" for name in tally.objects)
    cli.output.result(f"wrote {counts or 'nothing'}", tally)
