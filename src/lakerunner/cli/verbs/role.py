"""A role as a command: `lakerunner relay` and the like run one alone, in this process."""

from __future__ import annotations

from collections.abc import Callable

from lakerunner.cli.verb import Cli, verb
from lakerunner.runtime.role import Role
from lakerunner.runtime.run import run_role


def role_command(role: type[Role]) -> Callable[..., None]:
    def run(cli: Cli) -> int:
        return run_role(role, cli.settings)

    run.__doc__ = role.sentence
    return verb(run)
