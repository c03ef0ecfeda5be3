"""`lakerunner`: the table of its verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from lakerunner import __version__
from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs import bus, config, house, key, org
from lakerunner.ops.roles import ROLES
from lakerunner.runtime.role import Role
from lakerunner.runtime.run import EXIT_MISUSE, run_role

app = typer.Typer(
    name="lakerunner",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A telemetry lake: logs, metrics and traces as open Parquet in your own bucket. "
    "`lakerunner serve` runs everything on one machine.",
    epilog="Every setting can be given as --set NAME=VALUE, in a YAML file, or as LAKERUNNER_NAME: "
    "see `lakerunner config show`. Exit codes: 0 done, 1 failed, 2 misuse.",
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"lakerunner {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_MISUSE)


def _role_command(role: type[Role]) -> Callable[..., None]:
    def run(cli: Cli) -> int:
        return run_role(role, cli.settings)

    run.__doc__ = role.sentence
    return verb(run)


for _function in (house.serve, house.migrate, house.status, house.doctor):
    app.command(rich_help_panel="House")(_function)
for _role in ROLES:
    app.command(_role.name, rich_help_panel="Roles, run alone")(_role_command(_role))
for _name, _app in (("bus", bus.app), ("config", config.app), ("key", key.app), ("org", org.app)):
    app.add_typer(_app, name=_name, rich_help_panel="Nouns")


def main() -> None:
    app()
