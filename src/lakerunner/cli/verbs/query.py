"""`lakerunner query`: query a running query API."""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.api_client import ApiClient
from lakerunner.cli.point_output import Point, write_points
from lakerunner.cli.render import DataFormat, shown, warn
from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput, LakeError, LimitHit, Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.model.time import parse_duration_s, parse_time_ms
from lakerunner.query.syntax.errors import ParseError
from lakerunner.runtime.exit_code import EXIT_FAILED, EXIT_MISUSE, EXIT_OK

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(no_args_is_help=True, help="Query values, labels and series, and explain queries.")

UrlOption = Annotated[str, typer.Option(help="Address of the query API.", show_default="api.url, else this machine")]
KeyOption = Annotated[str, typer.Option(help="API key.  [env: LAKERUNNER_API_KEY]", show_default="api.key")]
OrgOption = Annotated[
    str, typer.Option(help="Org to query, if the key opens several.", show_default="the org of the key")
]
SinceOption = Annotated[str, typer.Option(help="Length of the range before the end, such as 1h or 7d.")]
StartOption = Annotated[
    str, typer.Option(help="Start, such as 2026-01-31T12:00:00Z, now-2h or Unix seconds; overrides --since.")
]
EndOption = Annotated[str, typer.Option(help="End, in the same formats.")]
StepOption = Annotated[str, typer.Option(help="Time between points, such as 1m.", show_default="fits the range")]
MatchOption = Annotated[
    list[str] | None, typer.Option("--match", help="Series selector; may be repeated.", show_default="all series")
]
Expression = Annotated[str, typer.Argument(help="PromQL expression.", metavar="EXPR")]


@app.command()
@verb
def metrics(
    cli: Cli,
    expr: Expression,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    step: StepOption = "",
    plot: Annotated[bool, typer.Option("--plot", help="Draw each series as a sparkline.")] = False,
    limit: Annotated[int, typer.Option(help="Stop after this many points; 0 means no limit.", min=0)] = 0,
    fresh: Annotated[bool, typer.Option("--no-cache", help="Ignore cached results.")] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[DataFormat, typer.Option("--output", "-o", help="Format of the points.")] = DataFormat.TEXT,
) -> int:
    """Show the values of an expression over a time range, as they arrive."""
    if plot and output is not DataFormat.TEXT:
        raise BadInput(f"cannot plot as {output}: plots are text", hint="omit either --plot or --output")
    body = _body(expr, since, start, end, step) | {"limit": limit, "nocache": fresh}
    return _pointing_at_errors(
        lambda: _parse_promql(expr),
        lambda: write_points(_points(_client(cli, url, key, org).stream(body)), output, plot=plot),
    )


@app.command()
@verb
def explain(
    cli: Cli,
    expr: Expression,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    step: StepOption = "",
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> int:
    """Run an expression and show how it ran: segments considered, pruned (and by what), read, and the cost."""
    body = _body(expr, since, start, end, step) | {"explain": True, "nocache": True}

    def run() -> None:
        for kind, data in _client(cli, url, key, org).stream(body):
            if kind == "summary":
                cli.output.document(data)
            elif kind == "error":
                raise _stream_error(data)

    return _pointing_at_errors(lambda: _parse_promql(expr), run)


@app.command()
@verb
def labels(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Show the values of this label.", show_default="show label names")] = "",
    match: MatchOption = None,
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> None:
    """List label names, or the values of one label."""
    start_ms, end_ms = _times(since, start, end)
    path = f"/api/v1/label/{_escaped(name)}/values" if name else "/api/v1/labels"
    params = {"match[]": match or [], "start": str(start_ms / 1000), "end": str(end_ms / 1000)}
    answer = _client(cli, url, key, org).get(path, params)
    _warn(answer.get("warnings", ()))
    cli.output.rows([{name or "label": value} for value in answer["data"]], [name or "label"])


@app.command()
@verb
def series(
    cli: Cli,
    match: Annotated[list[str], typer.Argument(help="Series selectors.", metavar="SELECTOR...")],
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> None:
    """List the series that match any of the selectors."""
    start_ms, end_ms = _times(since, start, end)
    params = {"match[]": match, "start": str(start_ms / 1000), "end": str(end_ms / 1000)}
    answer = _client(cli, url, key, org).get("/api/v1/series", params)
    _warn(answer.get("warnings", ()))
    found: list[dict[str, str]] = answer["data"]
    cli.output.lines([str(LabelSet.of(labels)) for labels in found], found)


class RowSignal(enum.StrEnum):
    LOGS = "logs"
    TRACES = "traces"


@app.command()
@verb
def rows(
    cli: Cli,
    signal: Annotated[RowSignal, typer.Argument(help="Which rows: log records or spans.")],
    where: Annotated[
        str,
        typer.Option(
            help="Filter, such as 'service_name = \"cart\" and severity_number >= 17'; see docs/rows.md.",
            show_default="all rows",
        ),
    ] = "",
    since: SinceOption = "1h",
    start: StartOption = "",
    end: EndOption = "now",
    limit: Annotated[int, typer.Option(help="Rows to show; 0 means all of them.", min=0)] = 50,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Begin with the oldest rows.")] = False,
    field: Annotated[
        list[str] | None, typer.Option("--field", help="Column to show; may be repeated.", show_default="all")
    ] = None,
    attributes: Annotated[bool, typer.Option("--attributes", help="Show attributes in text output.")] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[DataFormat, typer.Option("--output", "-o", help="Format of the rows.")] = DataFormat.TEXT,
) -> int:
    """Show log records or spans that satisfy a filter, the newest first."""
    start_ms, end_ms = _times(since, start, end)
    body: dict[str, object] = {"where": where, "s": start_ms, "e": end_ms, "limit": limit, "oldest_first": oldest_first}
    if field:
        body["fields"] = field

    def show() -> None:
        from lakerunner.cli.rows import write_rows
        from lakerunner.model.signals import signal_named

        batches = _rows(_client(cli, url, key, org).rows(signal.value, body))
        write_rows(batches, output, signal_named(signal.value), attributes=attributes)

    return _pointing_at_errors(lambda: _parse_filter(where), show)


def _rows(parts: Iterable[tuple[pa.RecordBatch, Any]]) -> Iterator[pa.RecordBatch]:
    """The batches that have rows; progress on a terminal, warnings and errors at the end."""
    show, rows = sys.stderr.isatty() and not sys.stdout.isatty(), 0
    for batch, summary in parts:
        if batch.num_rows:
            rows += batch.num_rows
            yield batch
            if show:
                sys.stderr.write(f"\r{rows:,} rows ")
        if summary is not None:
            if show:
                sys.stderr.write("\n")
            if "error" in summary:
                raise _stream_error(summary["error"])
            _warn(summary["warnings"])


def _client(cli: Cli, url: str, key: str, org: str) -> ApiClient:
    settings = cli.settings
    here = f"http://{settings.http.host}:{settings.http.port}"
    return ApiClient(url or settings.api.url or here, key or settings.api.key, org)


def _body(expr: str, since: str, start: str, end: str, step: str) -> dict[str, object]:
    start_ms, end_ms = _times(since, start, end)
    return {"q": expr, "s": start_ms, "e": end_ms, **({"step": step} if step else {})}


def _times(since: str, start: str, end: str) -> tuple[int, int]:
    now_ms = time.time_ns() // 1_000_000
    end_ms = _time_ms("--end", end, now_ms)
    start_ms = _time_ms("--start", start, now_ms) if start else end_ms - round(parse_duration_s(since) * 1000)
    if start_ms > end_ms:
        raise BadInput("cannot query a range that ends before it starts", hint="change --start, --end or --since")
    return start_ms, end_ms


def _time_ms(option: str, text: str, now_ms: int) -> int:
    word, minus, span = text.partition("-")
    if word == "now":
        return now_ms - (round(parse_duration_s(span) * 1000) if minus else 0)
    return parse_time_ms(option, text)


def _pointing_at_errors(check: Callable[[], object], run: Callable[[], object]) -> int:
    """Run a query. If the API refuses it, parse it here and show a syntax error with its token underlined.

    It is not parsed before: the parsers bring the types of the evaluator, which take longer to import than most
    queries take.
    """
    try:
        run()
    except BadInput:
        try:
            check()
        except ParseError as error:
            sys.stderr.writelines(f"{shown(line)}\n" for line in f"lakerunner: {error.rendered()}".split("\n"))
            return EXIT_MISUSE
        raise
    except BrokenPipeError:
        return EXIT_FAILED
    return EXIT_OK


def _parse_promql(expr: str) -> None:
    from lakerunner.query.promql.parser import parse

    parse(expr)


def _parse_filter(where: str) -> None:
    from lakerunner.query.rows.parser import parse

    if where.strip():
        parse(where)


def _points(frames: Iterable[tuple[str, Any]]) -> Iterator[Point]:
    """Yield the points of a stream. Progress (on a terminal) and warnings go to standard error."""
    show_progress = sys.stderr.isatty()
    for kind, data in frames:
        if kind == "result":
            yield Point.of(data)
        elif kind == "progress" and show_progress:
            sys.stderr.write(f"\r{data['group']}/{data['groups']} read {data['rows']:,} rows, {data['bytes']:,} bytes ")
            sys.stderr.write("\n" if data["group"] == data["groups"] else "")
        elif kind == "warnings":
            _warn([*data["warnings"], *data["infos"]])
        elif kind == "error":
            raise _stream_error(data)


def _stream_error(data: Any) -> LakeError:
    kind = LimitHit if data["code"] in ("limit_hit", "timeout") else Unavailable
    return kind(data["message"], hint=data["hint"], where=data["where"])


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        warn(warning)


def _escaped(name: str) -> str:
    """Encode a label name for a URL path as Prometheus does, with `U__` in front of names that need it."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    encoded = (c if c.isascii() and c.isalnum() else "__" if c == "_" else f"_{ord(c):x}_" for c in name)
    return "U__" + "".join(encoded)
