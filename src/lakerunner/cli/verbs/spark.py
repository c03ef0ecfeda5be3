"""`lakerunner spark`: what executors of a Spark cluster need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb

app = typer.Typer(no_args_is_help=True, help="Spark clusters: build what executors need.")


@app.command()
@verb
def package(
    cli: Cli,
    to: Annotated[
        Path, typer.Option("--to", help="File to write; a name that ends with .tar is not compressed.")
    ] = Path("lakerunner-env.tar.gz"),
    python: Annotated[
        bool,
        typer.Option("--python/--no-python", help="Whether the interpreter is in it too. Without, executors need it."),
    ] = True,
) -> None:
    """Build the archive that executors unpack: Lakerunner, its dependencies and Python. Set spark.package to it.

    Executors need the same operating system and processor as this machine, and nothing else but Spark. Build it again
    after every upgrade. Where executors run from an image in which Lakerunner is installed, it is not needed.
    """
    from lakerunner.pipeline.spark.package import write_package

    size = write_package(to, with_python=python)
    place = to.resolve()
    cli.output.result(
        f"{place} has {size / 1e6:.0f} MB; use it with --set spark.package={place}",
        {"path": str(place), "bytes": size},
    )
