"""`lakerunner query`: query a running query API."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from lakerunner.cli.point_output import write_points
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
    stream_error,
    times_ms,
    warn_all,
)
from lakerunner.cli.render import DataFormat, check_terminal
from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.model.time import parse_duration_s

app = typer.Typer(
    no_args_is_help=True,
    help="Query metrics, logs and traces through a running query API, and explain how queries ran.",
)

MatchOption = Annotated[
    list[str] | None, typer.Option("--match", help="Series selector; may be repeated.", show_default="all series")
]
MaxTierOption = Annotated[
    str,
    typer.Option(
        help="Coarsest tier to read instead of raw samples: 1m, 5m, 1h, 1d, or off.", show_default="what the API allows"
    ),
]
ApproximateOption = Annotated[
    bool, typer.Option("--approximate", help="Allow quantile_over_time to read the sketches of tiers, within 1%.")
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
    max_tier: MaxTierOption = "",
    approximate: ApproximateOption = False,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show how the query ran, and which tiers it read, instead of its values.")
    ] = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
    output: Annotated[DataFormat, typer.Option("--output", "-o", help="Format of the points.")] = DataFormat.TEXT,
) -> int:
    """Show the values of an expression over a time range, as they arrive.

    For example:

        lakerunner query metrics 'sum by (job) (rate(requests_total[5m]))' --since 1h --plot
        lakerunner query metrics 'up' --start 2026-11-01 --end 2026-11-02 --step 1m -o csv
    """
    if plot and output is not DataFormat.TEXT:
        raise BadInput(f"cannot plot as {output}: plots are text", hint="omit either --plot or --output")
    check_terminal(output)
    if explained:
        return _explained(cli, expr, _body(expr, since, start, end, step, max_tier, approximate), url, key, org)
    body = _body(expr, since, start, end, step, max_tier, approximate) | {"limit": limit, "nocache": fresh}
    return pointing_at_errors(
        lambda: _parse_promql(expr),
        lambda: write_points(points_of(client_of(cli, url, key, org).stream(body)), output, plot=plot),
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
    max_tier: MaxTierOption = "",
    approximate: ApproximateOption = False,
    url: UrlOption = "",
    key: KeyOption = "",
    org: OrgOption = "",
) -> int:
    """Run an expression and show how it ran: segments considered, pruned (and by what), read, tiers, and the cost."""
    return _explained(cli, expr, _body(expr, since, start, end, step, max_tier, approximate), url, key, org)


def _explained(cli: Cli, expr: str, asked: dict[str, object], url: str, key: str, org: str) -> int:
    body = asked | {"explain": True, "nocache": True}

    def run() -> None:
        for kind, data in client_of(cli, url, key, org).stream(body):
            if kind == "summary":
                cli.output.document(data)
            elif kind == "error":
                raise stream_error(data)

    return pointing_at_errors(lambda: _parse_promql(expr), run)


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
    """List label names of metrics, or the values of one label. For logs, see `query fields` and `query volume --by`."""
    start_ms, end_ms = times_ms(since, start, end)
    path = f"/api/v1/label/{_escaped(name)}/values" if name else "/api/v1/labels"
    params = {"match[]": match or [], "start": str(start_ms / 1000), "end": str(end_ms / 1000)}
    answer = client_of(cli, url, key, org).get(path, params)
    warn_all(answer.get("warnings", ()))
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
    """List the series of metrics that match any of the selectors."""
    start_ms, end_ms = times_ms(since, start, end)
    params = {"match[]": match, "start": str(start_ms / 1000), "end": str(end_ms / 1000)}
    answer = client_of(cli, url, key, org).get("/api/v1/series", params)
    warn_all(answer.get("warnings", ()))
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
    check_terminal(output)
    start_ms, end_ms = times_ms(since, start, end)
    body: dict[str, object] = {"where": where, "s": start_ms, "e": end_ms, "limit": limit, "oldest_first": oldest_first}
    if field:
        body["fields"] = field

    def show() -> None:
        from lakerunner.cli.rows import write_rows
        from lakerunner.model.signals import signal_named

        batches = rows_of(client_of(cli, url, key, org).rows(signal.value, body))
        write_rows(batches, output, signal_named(signal.value), attributes=attributes)

    return pointing_at_errors(lambda: _parse_filter(where), show)


def _body(
    expr: str, since: str, start: str, end: str, step: str, max_tier: str, approximate: bool
) -> dict[str, object]:
    start_ms, end_ms = times_ms(since, start, end)
    if step and not start:
        # Whoever gives a length, and no start, does not mind points at multiples of the step: tiers have those.
        start_ms -= start_ms % max(1, round(parse_duration_s(step) * 1000))
    wanted = {"step": step, "max_tier": max_tier, "approximate": approximate}
    optional = {name: value for name, value in wanted.items() if value}
    return {"q": expr, "s": start_ms, "e": end_ms, **optional}


def _parse_promql(expr: str) -> None:
    from lakerunner.query.promql.parser import parse

    parse(expr)


def _parse_filter(where: str) -> None:
    from lakerunner.query.rows.parser import parse

    if where.strip():
        parse(where)


def _escaped(name: str) -> str:
    """Encode a label name for a URL path as Prometheus does, with `U__` in front of names that need it."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    encoded = (c if c.isascii() and c.isalnum() else "__" if c == "_" else f"_{ord(c):x}_" for c in name)
    return "U__" + "".join(encoded)
