"""What all verbs that ask the query API share: options, times, the client, and errors that point at the token."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.api_client import ApiClient
from lakerunner.cli.point_output import Point
from lakerunner.cli.progress import conclude, progress_line
from lakerunner.cli.render import shown, warn
from lakerunner.cli.verb import Cli
from lakerunner.model.errors import BadInput, LakeError, LimitHit, Unavailable
from lakerunner.model.time import parse_duration_s, parse_time_ms
from lakerunner.query.syntax.errors import ParseError
from lakerunner.runtime.exit_code import EXIT_FAILED, EXIT_MISUSE, EXIT_OK

if TYPE_CHECKING:
    import pyarrow as pa

#: A date alone means its beginning, in UTC.
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
UrlOption = Annotated[str, typer.Option(help="Address of the query API.", show_default="api.url, else this machine")]
KeyOption = Annotated[
    str,
    typer.Option(
        help="API key. The variable LAKERUNNER_API_KEY keeps it out of the process list.", show_default="api.key"
    ),
]
OrgOption = Annotated[
    str, typer.Option(help="Org to query, if the key opens several.", show_default="the org of the key")
]
SinceOption = Annotated[str, typer.Option(help="Length of the range before the end, such as 1h or 7d.")]
StartOption = Annotated[
    str,
    typer.Option(help="Start, such as 2026-01-31, 2026-01-31T12:00:00Z, now-2h or Unix seconds; overrides --since."),
]
EndOption = Annotated[str, typer.Option(help="End, in the same formats.")]
StepOption = Annotated[str, typer.Option(help="Time between points, such as 1m.", show_default="fits the range")]


def client_of(cli: Cli, url: str, key: str, org: str) -> ApiClient:
    settings = cli.settings
    here = f"http://{settings.http.host}:{settings.http.port}"
    return ApiClient(url or settings.api.url or here, key or settings.api.key, org)


def times_ms(since: str, start: str, end: str) -> tuple[int, int]:
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
    try:
        return parse_time_ms(option, f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text)
    except BadInput as error:
        raise BadInput(error.message, hint="write it like 2026-01-31T12:00:00Z, now-2h or Unix seconds") from None


def pointing_at_errors(check: Callable[[], object], run: Callable[[], object]) -> int:
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


def points_of(frames: Iterable[tuple[str, Any]]) -> Iterator[Point]:
    """Yield the points of a stream. Progress (on a terminal) and warnings go to standard error."""
    with progress_line() as show:
        shows = False
        for kind, data in frames:
            # Points may go to the same terminal: they must not begin behind the progress.
            if shows and kind != "progress":
                show("")
                shows = False
            if kind == "result":
                yield Point.of(data)
            elif kind == "progress" and data["group"] < data["groups"]:
                show(f"part {data['group']} of {data['groups']}: read {data['rows']:,} rows, {data['bytes']:,} bytes")
                shows = True
            elif kind == "warnings":
                warn_all([*data["warnings"], *data["infos"]])
            elif kind == "error":
                raise stream_error(data)


def rows_of(
    parts: Iterable[tuple[pa.RecordBatch, Any]], what: str = "rows", bar: Callable[[pa.RecordBatch], str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches that have rows; progress on a terminal, warnings and errors at the end.

    `what` names the rows for people, and `bar` shows by the last batch how far the answer is.
    """
    rows = 0
    with progress_line() as show:
        for batch, summary in parts:
            if batch.num_rows:
                rows += batch.num_rows
                yield batch
                if not sys.stdout.isatty():
                    show(f"{bar(batch)} {rows:,} {what}" if bar else f"{rows:,} {what}")
            if summary is not None:
                if "error" in summary:
                    raise stream_error(summary["error"])
                warn_all(summary["warnings"])
    conclude(f"{rows:,} {what}")


def stream_error(data: Any) -> LakeError:
    kind = LimitHit if data["code"] in ("limit_hit", "timeout") else Unavailable
    return kind(data["message"], hint=data["hint"], where=data["where"])


def warn_all(warnings: Iterable[str]) -> None:
    for warning in warnings:
        warn(warning)
