"""Write the points of a range query as text, plot, CSV, JSON, Arrow or Parquet."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import orjson

from lakerunner.cli.render import DataFormat, csv_line, json_bytes, shown

if TYPE_CHECKING:
    import pyarrow as pa

_BARS = "▁▂▃▄▅▆▇█"
_PLOT_WIDTH, _LEAST_PLOT_WIDTH = 60, 10
_NUMBERS = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series."""

    time_ms: int
    label: str
    tags: Mapping[str, str]
    value: float | None
    #: A native histogram, as JSON.
    histogram: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Point:
        value = data.get("value")
        number = _NUMBERS[value] if isinstance(value, str) else value
        histogram = data.get("histogram")
        return cls(
            data["timestamp"],
            data["label"],
            data["tags"],
            number,
            None if histogram is None else orjson.dumps(histogram).decode(),
        )

    @property
    def height(self) -> float:
        """The number that a plot shows: the value, or the count of observations."""
        if self.histogram is not None:
            return float(orjson.loads(self.histogram)["count"])
        return math.nan if self.value is None else self.value

    @property
    def text(self) -> str:
        return self.histogram or f"{self.value:.12g}"


def write_text(points: Iterable[Point], out: TextIO) -> None:
    """Write one line per point, as they arrive."""
    for point in points:
        out.write(f"{time_text(point.time_ms)}  {point.text:>14}  {shown(point.label)}\n")


def write_plot(points: Iterable[Point], out: TextIO) -> None:
    """Write one line per series: a sparkline, and the minimum, maximum and last value.

    A native histogram is drawn by the count of its observations. NaN and infinite values have no bar.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    histograms: set[str] = set()
    for point in points:
        series.setdefault(point.label, []).append((point.time_ms, point.height))
        if point.histogram is not None:
            histograms.add(point.label)
    if not series:
        return
    times_ms = sorted({time_ms for samples in series.values() for time_ms, _ in samples})
    drawn = {
        label: [(time_ms, value) for time_ms, value in samples if math.isfinite(value)]
        for label, samples in series.items()
    }
    figures = []
    for label, samples in series.items():
        values = [value for _, value in drawn[label]] or [math.nan]
        figures.append([f"{value:.6g}" for value in (min(values), max(values), samples[-1][1])])
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]
    rests = []
    for label, (least, most, last) in zip(series, figures, strict=True):
        count = "count " if label in histograms else ""
        numbers = f"min {least:<{widths[0]}}  max {most:<{widths[1]}}  last {last:<{widths[2]}}"
        rests.append(f"{count}{numbers}  {shown(label)}")
    width = _plot_width(times_ms, max(map(len, rests)), out)
    for label, rest in zip(series, rests, strict=True):
        out.write(f"{sparkline(drawn[label], times_ms[0], times_ms[-1], width)}  {rest}\n")
    out.write(f"{time_text(times_ms[0])} to {time_text(times_ms[-1])}\n")


def _plot_width(times_ms: Sequence[int], beside: int, out: TextIO) -> int:
    """The columns of a sparkline: one for each step if these are few, and what a terminal has left beside the rest."""
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times_ms))
    # Without gaps between few points, which would look like missing data.
    steps = round((times_ms[-1] - times_ms[0]) / gaps[len(gaps) // 2]) + 1 if gaps else 1
    room = _PLOT_WIDTH
    if out.isatty():
        room = max(shutil.get_terminal_size().columns - beside - len("  "), _LEAST_PLOT_WIDTH)
    return min(steps, room, _PLOT_WIDTH)


def sparkline(samples: Sequence[tuple[int, float]], start_ms: int, end_ms: int, width: int = _PLOT_WIDTH) -> str:
    """Draw samples as bars between their minimum and maximum; blank where there is no sample.

    >>> sparkline([(0, 1.0), (10, 2.0), (30, 8.0)], 0, 30, 4)
    '▁▂ █'
    """
    low = min((value for _, value in samples), default=0.0)
    height = max((value for _, value in samples), default=0.0) - low
    bars = [" "] * width
    for time_ms, value in samples:
        place = round((time_ms - start_ms) * (width - 1) / max(end_ms - start_ms, 1))
        bars[place] = _BARS[round((value - low) / height * (len(_BARS) - 1)) if height else 0]
    return "".join(bars)


def write_json(points: Iterable[Point], out: BinaryIO) -> None:
    """Write one JSON object per line."""
    for point in points:
        value: dict[str, object] = {"value": point.text if point.value != point.value else point.value}
        if point.histogram is not None:
            value = {"histogram": orjson.loads(point.histogram)}
        document = {"timestamp": point.time_ms, **value, "label": point.label, "tags": dict(point.tags)}
        out.write(json_bytes(document) + b"\n")


def write_csv(points: Sequence[Point], out: TextIO) -> None:
    names = _label_names(points)
    out.write(csv_line(["timestamp", "value", *names]))
    for point in points:
        out.write(csv_line([time_text(point.time_ms), point.text, *(point.tags.get(name, "") for name in names)]))


def points_table(points: Sequence[Point]) -> pa.Table:
    """Build a table with one row per point and one column per label."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {
        "timestamp": pa.array([point.time_ms for point in points], pa.timestamp("ms", tz="UTC")),
        "value": pa.array([point.value for point in points], pa.float64()),
    }
    if any(point.histogram for point in points):
        columns["histogram"] = pa.array([point.histogram for point in points], pa.string())
    for name in _label_names(points):
        columns[name] = pa.array([point.tags.get(name) for point in points], pa.string())
    return pa.table(columns)


def write_points(points: Iterable[Point], kind: DataFormat, *, plot: bool) -> None:
    """Write points to standard output."""
    match kind:
        case DataFormat.TEXT if plot:
            write_plot(points, sys.stdout)
        case DataFormat.TEXT:
            write_text(points, sys.stdout)
        case DataFormat.JSON:
            write_json(points, sys.stdout.buffer)
        case DataFormat.CSV:
            write_csv(list(points), sys.stdout)
        case DataFormat.ARROW:
            import pyarrow.ipc

            table = points_table(list(points))
            with pyarrow.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
                stream.write_table(table)
        case DataFormat.PARQUET:
            import pyarrow.parquet

            # Through memory, because the Parquet writer needs a seekable file and stdout may be a pipe.
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(points_table(list(points)), buffer)
            sys.stdout.buffer.write(buffer.getvalue())
    sys.stdout.flush()


def time_text(time_ms: int) -> str:
    """Format a time in UTC; milliseconds are shown only if they are not zero.

    >>> time_text(1_700_000_000_000), time_text(1_500)
    ('2023-11-14T22:13:20Z', '1970-01-01T00:00:01.500Z')
    """
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    spec = "milliseconds" if time_ms % 1000 else "seconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def _label_names(points: Iterable[Point]) -> list[str]:
    return sorted({name for point in points for name in point.tags} - {"timestamp", "value", "histogram"})
