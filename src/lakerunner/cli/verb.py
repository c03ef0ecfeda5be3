"""What all verbs share: settings, output, and errors shown in one line.

Every verb imports this module and `main` imports every verb, so what a verb needs beyond settings and output (the
index, the bus, Arrow, Spark) is imported by the verb's function when it runs. `query` would otherwise take seconds.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lakerunner.cli.render import Output, OutputFormat, render_error, warn
from lakerunner.model.errors import BadInput, LakeError
from lakerunner.ops.roles import RoleEntry
from lakerunner.runtime.exit_code import EXIT_FAILED, exit_code_of
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.surroundings import settle_in

if TYPE_CHECKING:
    from lakerunner.index.database import Database

#: The file that the output goes to cannot grow.
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ConfigOption = Annotated[
    Optional[Path],  # noqa: UP045  (typer reads this form)
    typer.Option(
        "--config", "-c", help="YAML file of settings, or the variable LAKERUNNER_CONFIG.", show_default=False
    ),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", "-s", help="One setting, as NAME=VALUE; may be repeated.", show_default=False),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="How results are shown.")]


class Cli:
    """The context of a verb: settings, output, and access to the index."""

    def __init__(self, settings: Settings, output: Output) -> None:
        self.settings = settings
        self.output = output

    def index(self) -> AbstractContextManager[Database]:
        from lakerunner.ops.running_index import running_index

        return running_index(self.settings)


def verb(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a function whose first parameter is a `Cli` into a command with the options that all commands have.

    The function may return an exit code. A LakeError becomes one line on standard error and its own exit code. A
    function with a parameter `output` declares its own formats and receives the chosen one. A function with a parameter
    `set_` receives the `--set` options that name no setting (the names of settings contain a dot).
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    has_formats = any(parameter.name == "output" for parameter in own)
    has_set = any(parameter.name == "set_" for parameter in own)

    @functools.wraps(function)
    def command(*args: Any, config: Any = None, set_: Any = None, output: Any = None, **options: Any) -> None:
        try:
            overrides = set_ or []
            if has_set:
                options["set_"] = [text for text in overrides if "." not in text.partition("=")[0]]
                overrides = [text for text in overrides if text not in options["set_"]]
            settings = load_settings(config, os.environ, assignments(overrides))
            settle_in(settings.data.dir)
            if has_formats:
                options["output"] = output
            kind = OutputFormat.TEXT if has_formats else output or OutputFormat.TEXT
            code = function(Cli(settings, Output(kind)), *args, **options)
        except LakeError as error:
            render_error(error)
            raise typer.Exit(exit_code_of(error)) from None
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            warn(f"cannot write everything: {error.strerror}; what was written is not complete")
            _discard_output()
            raise typer.Exit(EXIT_FAILED) from None
        raise typer.Exit(code or 0)

    keyword = inspect.Parameter.KEYWORD_ONLY
    common = [inspect.Parameter("config", keyword, default=None, annotation=ConfigOption)]
    if not has_set:
        common.append(inspect.Parameter("set_", keyword, default=None, annotation=SetOption))
    if not has_formats:
        common.append(inspect.Parameter("output", keyword, default=OutputFormat.TEXT, annotation=OutputOption))
    command.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *common]}
    return command


def _discard_output() -> None:
    """Let what is left in buffers go nowhere: the interpreter writes it at its end, and would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def role_command(role: RoleEntry) -> Callable[..., None]:
    """Return a command, such as `lakerunner relay`, that runs one role in this process."""

    def run(cli: Cli) -> int:
        from lakerunner.runtime.run import run_role

        return run_role(role.load(), cli.settings)

    run.__doc__ = role.sentence
    return verb(run)


def assignments(texts: list[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` options."""
    parsed = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"cannot read --set {text!r}: no '='", hint="write NAME=VALUE, as in --set http.port=7200")
        parsed[name.strip()] = value
    return parsed
