"""A trace in the terminal: one line per span, with a bar that shows when it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape

_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green", "bright_magenta")
#: Characters of a bar, and the most of a name.
_BAR, _NAME = 40, 48


def waterfall(document: Mapping[str, Any], logs: Sequence[Mapping[str, Any]] = ()) -> Iterator[str]:
    """Yield the lines, as rich markup. Log records follow the span that wrote them."""
    spans = document["spans"]
    first = min(int(span["startNs"]) for span in spans)
    last = max(int(span["startNs"]) + span["durationNs"] for span in spans)
    width = max(last - first, 1)
    services = list(dict.fromkeys(span.get("service_name", "") for span in spans))
    colour = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(services)}
    by_span: dict[str, list[Mapping[str, Any]]] = {}
    for record in logs:
        by_span.setdefault(record.get("span_id", ""), []).append(record)
    errors = sum(span.get("status_code") == "error" for span in spans)
    yield (
        f"[bold]trace {document['traceId']}[/bold]  {len(spans)} spans  {len(services)} services  "
        f"{duration_text(width)}" + (f"  [red]{errors} errors[/red]" if errors else "")
    )
    for span in spans:
        service = span.get("service_name", "")
        name = f"{'  ' * min(span['depth'], 12)}{service or '?'}: {span.get('name', '')}"
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        start = min(int(_BAR * (int(span["startNs"]) - first) / width), _BAR - 1)
        size = max(1, round(_BAR * span["durationNs"] / width))
        bar = " " * min(start, _BAR - 1) + ("█" if span.get("critical") else "▒") * min(
            size, _BAR - min(start, _BAR - 1)
        )
        marks = [mark for mark in ("orphan", "cycle", "shared") if span.get(mark)]
        if span.get("skewNs") and not document["adjusted"]:
            marks.append(f"clock {duration_text(span['skewNs'])} behind")
        if span.get("status_code") == "error":
            marks.append(f"[red]ERROR {escape(span.get('status_message', ''))}[/red]")
        text = f"[{colour[service]}]{escape(shown):<{_NAME}}[/] {bar:<{_BAR}} {duration_text(span['durationNs']):>9}"
        yield f"{text}  {', '.join(marks)}".rstrip()
        for record in by_span.pop(span.get("span_id", ""), []):
            yield _log_line(record, span["depth"])
    for records in by_span.values():
        for record in records:
            yield _log_line(record, 0)
    yield from _notes(document)


def _log_line(record: Mapping[str, Any], depth: int) -> str:
    indent = "  " * min(depth, 12)
    return f"[dim]{indent}  │ {escape(record.get('severity', ''))} {escape(record.get('message', ''))}[/dim]"


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    if document["arriving"]:
        yield "[yellow]more spans of this trace may still arrive[/yellow]"
    if document["skewed"] and not document["adjusted"]:
        yield "[yellow]clocks differ between services; --adjust moves spans into their parents[/yellow]"
    if document["adjusted"] and document["skewed"]:
        yield "[yellow]times were adjusted for clocks that differ[/yellow]"


def duration_text(ns: float) -> str:
    """
    >>> duration_text(1_500_000), duration_text(20), duration_text(61_000_000_000)
    ('1.5ms', '20ns', '61s')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g}{unit}"
    return f"{ns:.0f}ns"
