"""`lakerunner query logs`, `volume`, `fields` and `patterns`: query log entries, and find out what there is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.api_client import ApiClient, Entries
from lakerunner.cli.point_output import Point, time_text, write_plot, write_points
from lakerunner.cli.querying import (
    EndOption,
    KeyOption,
    OrgOption,
    SinceOption,
    StartOption,
    StepOption,
    UrlOption,
    client_of,
    pointing_at_errors,
    points_of,
    rows_of,
    times_ms,
    warn_all,
)
from lakerunner.cli.render import DataFormat, OutputFormat, check_terminal, json_bytes, shows_colour, warn
from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs.query import app
from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.model.time import NS_PER_MS, parse_duration_s

if TYPE_CHECKING:
    import pyarrow as pa

    from lakerunner.cli.log_output import EntryStyle

#: Characters of a progress bar.
_BAR = 30
LogQuery = Annotated[str, typer.Argument(help="LogQL query.", metavar="QUERY")]
Selector = Annotated[str, typer.Argument(help="LogQL selector.", metavar="SELECTOR", show_default="everything")]
FieldOption = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        help="Label to show, or column to export; may be repeated.",
        show_default="level and service; all in exports",
    ),
]


@app.command()
@verb
def logs(
    cli: Cli,
    query: LogQuery,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    limit: Annotated[int, typer.Option(help="Entries to show; 0 means all of them.", min=0)] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new entries as they arrive.")] = False,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Begin with the oldest entries.")] = False,
    attributes: Annotated[bool, typer.Option("--attributes", help="Show all labels in text output.")] = False,
    field: FieldOption = None,
    step: StepOption = "",
    plot: Annotated[bool, typer.Option("--plot", help="Draw each series of a metric query.")] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[DataFormat, typer.Option("--output", "-o", help="Format of the entries.")] = DataFormat.TEXT,
) -> int:
    """Show the entries of a log query, the newest first, or the values of a metric query.

    For example:

        lakerunner query logs '{service_name="checkout"} |= "timeout" | json' --since 10m --limit 20
        lakerunner query logs '{service_name="checkout"}' --follow
        lakerunner query logs 'sum by (detected_level) (count_over_time({service_name=~".+"}[1m]))' --plot
        lakerunner query logs '{service_name="checkout"}' --since 7d --limit 0 -o parquet > checkout.parquet
    """
    if plot and output is not DataFormat.TEXT:
        raise BadInput(f"cannot plot as {output}: plots are text", hint="omit either --plot or --output")
    if follow and end != "now":
        raise BadInput("cannot follow until --end: it goes on until it is interrupted", hint="omit --follow or --end")
    check_terminal(output)
    start_ms, end_ms = times_ms(since, start, end)
    client = client_of(cli, url, key, org)
    body: dict[str, object] = {"q": query, "s": start_ms, "e": end_ms, "limit": limit, "reverse": not oldest_first}
    if step:
        body["step"] = step

    def show() -> None:
        from lakerunner.cli.log_output import EntryStyle, write_entries

        style = EntryStyle(tuple(field or ()), attributes, shows_colour())
        if plot:
            _check_numbers(query)
        if follow:
            _follow(client, {"q": query, "s": start_ms, "limit": limit}, output, style)
            return
        answer = client.logs(body)
        if isinstance(answer, Entries):
            write_entries(_entries(answer.batches, start_ms, end_ms), output, style)
        else:
            write_points(points_of(answer.frames), output, plot=plot)

    return pointing_at_errors(lambda: _parse(query), show)


def _check_numbers(query: str) -> None:
    from lakerunner.query.logql.ast import LogSelector
    from lakerunner.query.logql.parser import parse

    if isinstance(parse(query), LogSelector):
        raise BadInput(
            "cannot plot entries: they are not numbers",
            hint="count them with sum(count_over_time(… [1m])), or use `lakerunner query volume --plot`",
        )


def _entries(parts: Iterable[tuple[pa.RecordBatch, Any]], start_ms: int, end_ms: int) -> Iterator[pa.RecordBatch]:
    """The batches that have entries; a progress bar on a terminal, warnings and errors at the end."""
    is_empty = True
    for batch in rows_of(parts, "entries", lambda batch: _bar(batch, start_ms, end_ms)):
        is_empty = False
        yield batch
    if is_empty and sys.stdout.isatty():
        warn(f"no entries from {time_text(start_ms)} to {time_text(end_ms)}")


def _bar(batch: pa.RecordBatch, start_ms: int, end_ms: int) -> str:
    """How much of the range was read: entries come in order of time."""
    times = batch.column("timestamp")
    first_ms, last_ms = (times[row].value // NS_PER_MS for row in (0, batch.num_rows - 1))
    read_ms = end_ms - last_ms if last_ms <= first_ms else last_ms - start_ms
    share = min(max(read_ms / max(end_ms - start_ms, 1), 0.0), 1.0)
    return f"[{'#' * round(share * _BAR):{_BAR}}] {share:4.0%}"


def _follow(client: ApiClient, body: dict[str, object], output: DataFormat, style: EntryStyle) -> None:
    """Show entries until it is interrupted."""
    from lakerunner.cli.following import follow
    from lakerunner.cli.log_output import document_of, text_line

    if output not in (DataFormat.TEXT, DataFormat.JSON):
        raise BadInput(f"cannot follow as {output}: it has an end", hint="use -o text or -o json, or omit --follow")
    with contextlib.suppress(KeyboardInterrupt):
        for entry in follow(client.tail, body):
            line = text_line(entry, style) if output is DataFormat.TEXT else ""
            sys.stdout.buffer.write(line.encode() if line else json_bytes(document_of(entry, style)))
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()


@app.command()
@verb
def volume(
    cli: Cli,
    selector: Selector = "{}",
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Label of streams to group by; may be repeated.", show_default="service_name"),
    ] = None,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    step: StepOption = "",
    limit: Annotated[int, typer.Option(help="Groups to show, the largest first.", min=1)] = 100,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the volume of each group over time.")] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> int:
    """Show how many bytes of log lines there are, by labels; with --plot, over time.

    For example:

        lakerunner query volume --since 1d --plot
        lakerunner query volume '{service_name="checkout"}' --by k8s_pod_name
    """
    if plot and cli.output.kind is not OutputFormat.TEXT:
        raise BadInput(f"cannot plot as {cli.output.kind}: plots are text", hint="omit either --plot or --output")
    if step and not plot:
        raise BadInput("cannot use --step without --plot: a total has no steps", hint="add --plot, or omit --step")
    start_ms, end_ms = times_ms(since, start, end)
    params = _range(start_ms, end_ms) | {"limit": str(limit), "targetLabels": ",".join(by or ["service_name"])}
    params["query"] = '{service_name=~".+"}' if selector.strip() == "{}" else selector
    client = client_of(cli, url, key, org)

    def show() -> None:
        if plot:
            step_text = step or f"{max((end_ms - start_ms) // 60_000, 1)}s"
            shown_ms = (start_ms, end_ms) if start or end != "now" else _whole_steps(start_ms, end_ms, step_text)
            wanted = params | _range(*shown_ms) | {"step": step_text}
            answer = client.get("/loki/api/v1/index/volume_range", wanted)
            write_plot(_points(answer["data"]["result"]), sys.stdout)
        else:
            answer = client.get("/loki/api/v1/index/volume", params)
            rows = [{"labels": _label(one["metric"]), "bytes": int(one["value"][1])} for one in _result(answer)]
            cli.output.rows(rows, ["bytes", "labels"])
        warn_all(answer.get("warnings", ()))
        if by and not _result(answer):
            names = ", ".join(by)
            warn(
                f"no stream has all of these labels: {names}; "
                f"for other fields, ask lakerunner query logs 'sum by ({names}) (bytes_over_time({{…}}[1h]))'"
            )

    return pointing_at_errors(lambda: _parse(selector), show)


def _whole_steps(start_ms: int, end_ms: int, step: str) -> tuple[int, int]:
    """The whole steps of a range, if it has any: a part of a step at its end would look like a drop.

    >>> _whole_steps(65_000, 250_000, "1m"), _whole_steps(65_000, 70_000, "1m")
    ((120000, 240000), (65000, 70000))
    """
    step_ms = max(round(parse_duration_s(step) * 1000), 1)
    first_ms, last_ms = -(-start_ms // step_ms) * step_ms, end_ms // step_ms * step_ms
    return (first_ms, last_ms) if first_ms < last_ms else (start_ms, end_ms)


def _result(answer: Any) -> list[Any]:
    found: list[Any] = answer["data"]["result"]
    return found


def _points(series: Iterable[Any]) -> Iterator[Point]:
    for one in series:
        label = _label(one["metric"])
        # Where each group has one time, the answer is a vector.
        for time_s, value in one.get("values") or [one["value"]]:
            yield Point(round(time_s * 1000), label, one["metric"], float(value), None)


@app.command()
@verb
def fields(
    cli: Cli,
    query: LogQuery,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    lines: Annotated[int, typer.Option(help="Newest lines to look at.", min=1, max=5000)] = 1000,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> int:
    """Show the fields of log entries: attributes, and what parsing their lines would give.

    For example:

        lakerunner query fields '{service_name="payment"}' --since 10m
    """
    params = _range(*times_ms(since, start, end)) | {"query": query, "line_limit": str(lines)}
    client = client_of(cli, url, key, org)

    def show() -> None:
        answer = client.get("/loki/api/v1/detected_fields", params)
        rows = [
            {
                "field": each["label"],
                "type": each["type"],
                "values": each["cardinality"],
                "parsers": tuple(each["parsers"] or ()),
            }
            for each in answer.get("fields") or ()
        ]
        cli.output.rows(rows, ["field", "type", "values", "parsers"])

    return pointing_at_errors(lambda: _parse(query), show)


@app.command()
@verb
def patterns(
    cli: Cli,
    selector: Selector = "{}",
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    new_since: Annotated[
        str,
        typer.Option(
            help="Show only patterns that did not occur in this time before the range, such as 24h.",
            show_default="all patterns",
        ),
    ] = "",
    limit: Annotated[int, typer.Option(help="Patterns to show, the most frequent first.", min=1)] = 50,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> int:
    """Show the patterns of log lines: what is left when numbers, ids and other variable parts are taken out.

    For example:

        lakerunner query patterns '{detected_level="error"}' --since 1h --new-since 24h
    """
    start_ms, end_ms = times_ms(since, start, end)
    client = client_of(cli, url, key, org)
    query = '{service_name=~".+"}' if selector.strip() == "{}" else selector

    params = _range(start_ms, end_ms) | {"query": query}
    if new_since:
        params["new_since"] = f"{round(parse_duration_s(new_since) * 1000)}ms"

    def show() -> None:
        answer = client.get("/loki/api/v1/patterns", params)
        warn_all(answer.get("warnings", ()))
        found: dict[tuple[str, str], int] = {}
        for each in answer["data"] or ():
            kind = each["pattern"], each.get("level", "")
            found[kind] = found.get(kind, 0) + sum(number for _, number in each["samples"])
        frequent = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:limit]
        rows = [{"lines": number, "level": level, "pattern": pattern} for (pattern, level), number in frequent]
        cli.output.rows(rows, ["lines", "level", "pattern"])

    return pointing_at_errors(lambda: _parse(selector), show)


def _range(start_ms: int, end_ms: int) -> dict[str, str]:
    return {"start": str(start_ms * NS_PER_MS), "end": str(end_ms * NS_PER_MS)}


def _label(labels: dict[str, str]) -> str:
    return str(LabelSet.of(labels))


def _parse(query: str) -> None:
    from lakerunner.query.logql.parser import parse

    if query.strip() not in ("", "{}"):
        parse(query)
