"""`lakerunner query trace` and `lakerunner query servicemap`: draw a trace, and what calls what."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lakerunner.cli.querying import (
    EndOption,
    KeyOption,
    OrgOption,
    SinceOption,
    StartOption,
    UrlOption,
    client_of,
    times_ms,
    warn_all,
)
from lakerunner.cli.render import json_bytes
from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs.query import app

#: How nodes are drawn that are not services: by Graphviz, and by Mermaid.
_SHAPES = {"database": "cylinder", "external": "ellipse"}
_BRACKETS = {"database": ("[(", ")]"), "external": ("([", "])")}


class TraceFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    OTLP = "otlp"


class MapFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    MERMAID = "mermaid"


@app.command()
@verb
def trace(
    cli: Cli,
    trace_id: Annotated[str, typer.Argument(help="Trace id in hex; zeros at its beginning may be left out.")],
    logs: Annotated[bool, typer.Option("--logs", help="Show the log records of each span under it.")] = False,
    adjust: Annotated[
        bool, typer.Option("--adjust", help="Move spans of a clock that is behind into their parents.")
    ] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[
        TraceFormat, typer.Option("--output", "-o", help="Drawing, assembled JSON, or OTLP as JSON.")
    ] = TraceFormat.TEXT,
) -> int:
    """Draw a trace: one line per span, services coloured, errors and the critical path marked.

    `lakerunner query rows traces` and the labels of log entries show ids of traces. For example:

        lakerunner query trace 4bf92f3577b34da6a3ce929d0e0e4736 --logs
    """
    from lakerunner.query.traces.trace_id import full_trace_id

    trace_id = full_trace_id(trace_id)
    client = client_of(cli, url, key, org)

    def show() -> None:
        if output is TraceFormat.OTLP:
            answer = client.get(f"/api/v2/traces/{trace_id}", {})
            sys.stdout.buffer.write(json_bytes(answer.get("trace", {})) + b"\n")
            return
        found = client.get(f"/api/v1/traces/{trace_id}", {"adjust": "1"} if adjust else {})
        records = client.get(f"/api/v1/traces/{trace_id}/logs", {})["logs"] if logs else []
        warn_all(found["warnings"])
        if output is TraceFormat.JSON:
            sys.stdout.buffer.write(json_bytes({**found, "logs": records} if logs else found) + b"\n")
            return
        from rich.console import Console

        from lakerunner.cli.waterfall import waterfall

        console = Console(highlight=False, soft_wrap=True)
        for line in waterfall(found, records):
            console.print(line)

    show()
    return 0


@app.command()
@verb
def servicemap(
    cli: Cli,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[
        MapFormat, typer.Option("--output", "-o", help="Table, JSON, or a graph for Graphviz or Mermaid.")
    ] = MapFormat.TEXT,
) -> int:
    """Show which service calls which, how often, with which errors and how fast."""
    start_ms, end_ms = times_ms(since, start, end)
    client = client_of(cli, url, key, org)

    def show() -> None:
        found = client.get("/api/v1/servicemap", {"start": f"{start_ms / 1000}", "end": f"{end_ms / 1000}"})
        warn_all(found["warnings"])
        match output:
            case MapFormat.JSON:
                sys.stdout.buffer.write(json_bytes(found) + b"\n")
            case MapFormat.DOT:
                typer.echo(dot(found))
            case MapFormat.MERMAID:
                typer.echo(mermaid(found))
            case MapFormat.TEXT:
                typer.echo("\n".join(table(found)))

    show()
    return 0


def table(found: Mapping[str, Any]) -> list[str]:
    lines = [f"{'CLIENT':<24} {'SERVER':<24} {'CALLS/S':>10} {'ERRORS':>7} {'P50':>9} {'P99':>9}  TYPE"]
    for edge in found["edges"]:
        p50, p99 = (_seconds(edge[name]) for name in ("p50Seconds", "p99Seconds"))
        lines.append(
            f"{edge['client'][:24]:<24} {edge['server'][:24]:<24} {edge['rate']:>10.4g} {edge['errorRatio']:>7.1%}"
            f" {p50:>9} {p99:>9}  {edge['connectionType']}".rstrip()
        )
    return lines


def _seconds(value: float | None) -> str:
    from lakerunner.cli.waterfall import duration_text

    return "-" if value is None or value != value else duration_text(value * 1e9)


def dot(found: Mapping[str, Any]) -> str:
    lines = ["digraph services {", "  rankdir=LR;"]
    lines += [f"  {_quoted(node['name'])} [shape={_SHAPES.get(node['type'], 'box')}];" for node in found["nodes"]]
    for edge in found["edges"]:
        label = f"{edge['rate']:.3g}/s"
        colour = ' color="red"' if edge["failed"] else ""
        lines.append(f"  {_quoted(edge['client'])} -> {_quoted(edge['server'])} [label={_quoted(label)}{colour}];")
    return "\n".join([*lines, "}"])


def mermaid(found: Mapping[str, Any]) -> str:
    names = {node["name"]: f"n{number}" for number, node in enumerate(found["nodes"])}
    lines = ["flowchart LR"]
    for node in found["nodes"]:
        opening, closing = _BRACKETS.get(node["type"], ("[", "]"))
        lines.append(f'  {names[node["name"]]}{opening}"{_mermaid_text(node["name"])}"{closing}')
    edges = [f"  {names[edge['client']]} -->|{edge['rate']:.3g}/s| {names[edge['server']]}" for edge in found["edges"]]
    return "\n".join([*lines, *edges])


def _mermaid_text(text: str) -> str:
    """Text within quotes of a flowchart, which has codes in place of characters that end it or begin a code.

    >>> _mermaid_text('a "b" #1')
    'a #quot;b#quot; #35;1'
    """
    return text.replace("#", "#35;").replace('"', "#quot;").replace("\n", " ")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
