"""`lakerunner config`: show and check the settings."""

from __future__ import annotations

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.runtime.settings.table import TABLE, mask

app = typer.Typer(no_args_is_help=True, help="Settings: show them, check them.")


@app.command()
@verb
def show(cli: Cli) -> None:
    """Show every setting with its value, default and description. Passwords are masked."""
    rows = []
    for name, setting in TABLE.items():
        section, _, key = name.partition(".")
        value = mask(setting, getattr(getattr(cli.settings, section), key))
        rows.append({"setting": name, "value": value, "default": setting.default_text, "about": setting.sentence})
    cli.output.rows(rows, ["setting", "value", "default", "about"])


@app.command()
@verb
def check(cli: Cli) -> None:
    """Check the settings from file, environment and options. The exit code is 2 if one is invalid."""
    # Imported here: no other verb of this module needs the readers, which take long to import.
    from lakerunner.formats.mappings import parse_mappings

    parse_mappings(cli.settings.formats.mapping)
    cli.output.result("the settings are valid", {"ok": True})
