"""`lakerunner bus`: what waits, what passed, what could not be handled."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="The bus: what waits, what passed, what could not be handled.")
