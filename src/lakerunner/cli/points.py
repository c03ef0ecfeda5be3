"""Points of a range query in the forms that the command line gives them: text, plot, CSV, JSON, Arrow, Parquet."""

from __future__ import annotations

import csv
import datetime as dt
import enum
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

import orjson
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

_BARS = "▁▂▃▄▅▆▇█"
_PLOT_WIDTH = 60
_NUMBERS = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}


class PointFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Point:
    time_ms: int
    label: str
    tags: Mapping[str, str]
    value: float | None
    #: The value of a native histogram, as JSON.
    histogram: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Point:
        value = data.get("value")
        number = _NUMBERS[value] if isinstance(value, str) else value
        held = data.get("histogram")
        return cls(
            data["timestamp"],
            data["label"],
            data["tags"],
            number,
            None if held is None else orjson.dumps(held).decode(),
        )

    @property
    def shown(self) -> str:
        return self.histogram or f"{self.value:.12g}"


def write_text(points: Iterable[Point], out: TextIO) -> None:
    """A line a point, as they come."""
    for point in points:
        out.write(f"{time_text(point.time_ms)}  {point.shown:>14}  {point.label}\n")


def write_plot(points: Iterable[Point], out: TextIO) -> None:
    """A line a series: its course, and its least, largest and last value."""
    courses: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        if point.value is not None and abs(point.value) != float("inf") and point.value == point.value:
            courses.setdefault(point.label, []).append((point.time_ms, point.value))
    if not courses:
        return
    start_ms = min(course[0][0] for course in courses.values())
    end_ms = max(course[-1][0] for course in courses.values())
    for label, course in courses.items():
        values = [value for _, value in course]
        told = f"min {min(values):.6g}  max {max(values):.6g}  last {values[-1]:.6g}"
        out.write(f"{plotted(course, start_ms, end_ms)}  {told}  {label}\n")
    out.write(f"{time_text(start_ms)} to {time_text(end_ms)}\n")


def plotted(course: Sequence[tuple[int, float]], start_ms: int, end_ms: int, width: int = _PLOT_WIDTH) -> str:
    """The course as bars from its least to its largest value; blanks where there is none.

    >>> plotted([(0, 1.0), (10, 2.0), (30, 8.0)], 0, 30, 4)
    '▁▂ █'
    """
    low = min(value for _, value in course)
    height = max(value for _, value in course) - low
    bars = [" "] * width
    for time_ms, value in course:
        place = round((time_ms - start_ms) * (width - 1) / max(end_ms - start_ms, 1))
        bars[place] = _BARS[round((value - low) / height * (len(_BARS) - 1)) if height else 0]
    return "".join(bars)


def write_json(points: Iterable[Point], out: BinaryIO) -> None:
    """An object a line."""
    for point in points:
        value: dict[str, object] = {"value": point.shown if point.value != point.value else point.value}
        if point.histogram is not None:
            value = {"histogram": orjson.loads(point.histogram)}
        document = {"timestamp": point.time_ms, **value, "label": point.label, "tags": dict(point.tags)}
        out.write(orjson.dumps(document) + b"\n")


def write_csv(points: Sequence[Point], out: TextIO) -> None:
    names = _label_names(points)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["timestamp", "value", *names])
    writer.writerows(
        [time_text(point.time_ms), point.shown, *(point.tags.get(name, "") for name in names)] for point in points
    )


def table_of(points: Sequence[Point]) -> pa.Table:
    """A row a point, a column a label."""
    columns: dict[str, pa.Array] = {
        "timestamp": pa.array([point.time_ms for point in points], pa.timestamp("ms", tz="UTC")),
        "value": pa.array([point.value for point in points], pa.float64()),
    }
    if any(point.histogram for point in points):
        columns["histogram"] = pa.array([point.histogram for point in points], pa.string())
    for name in _label_names(points):
        columns[name] = pa.array([point.tags.get(name) for point in points], pa.string())
    return pa.table(columns)


def write_points(points: Iterable[Point], kind: PointFormat, *, plot: bool) -> None:
    """To standard output."""
    match kind:
        case PointFormat.TEXT if plot:
            write_plot(points, sys.stdout)
        case PointFormat.TEXT:
            write_text(points, sys.stdout)
        case PointFormat.JSON:
            write_json(points, sys.stdout.buffer)
        case PointFormat.CSV:
            write_csv(list(points), sys.stdout)
        case PointFormat.ARROW:
            table = table_of(list(points))
            with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
                stream.write_table(table)
        case PointFormat.PARQUET:
            # By way of memory: Parquet is not written to what cannot be told its place, such as a pipe.
            whole = io.BytesIO()
            pa.parquet.write_table(table_of(list(points)), whole)
            sys.stdout.buffer.write(whole.getvalue())
    sys.stdout.flush()


def time_text(time_ms: int) -> str:
    """UTC, to the second where it is a whole one.

    >>> time_text(1_700_000_000_000), time_text(1_500)
    ('2023-11-14T22:13:20Z', '1970-01-01T00:00:01.500Z')
    """
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    spec = "milliseconds" if time_ms % 1000 else "seconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def _label_names(points: Iterable[Point]) -> list[str]:
    return sorted({name for point in points for name in point.tags} - {"timestamp", "value", "histogram"})
