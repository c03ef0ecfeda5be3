"""Reads docs/deploy.md: its settings, and the commands that an operator types, in their order."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


@dataclass(frozen=True)
class Page:
    #: The settings file, as it is printed.
    settings: str
    #: Commands that end, each without `lakerunner`.
    commands: tuple[tuple[str, ...], ...]
    #: The command that runs on every host.
    serve: tuple[str, ...]


def read_page(path: Path = PAGE) -> Page:
    """Commands begin with `$`; with `&` if they go on running; with `#` if only some deployments need them."""
    text = path.read_text()
    (settings,) = re.findall(r"```yaml lakerunner.yaml\n(.*?)```", text, re.DOTALL)
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    commands = [tuple(shlex.split(line[2:])) for line in lines if line.startswith("$ ")]
    (serve,) = [tuple(shlex.split(line[2:])) for line in lines if line.startswith("& ")]
    assert all(command[0] == "lakerunner" for command in (*commands, serve)), commands
    return Page(settings, tuple(command[1:] for command in commands), serve[1:])
