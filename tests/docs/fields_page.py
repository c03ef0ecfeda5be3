"""Generate docs/formats/fields.md: how logs, metrics and spans of any writer are recognised."""

from __future__ import annotations

from lakerunner.formats.detect import Format
from lakerunner.formats.records.fields import BODIES, FIELDS, SETTING_NAMES, WRAPPERS
from lakerunner.formats.severity import LEVEL_NUMBERS, SCALES
from lakerunner.formats.text.dialects import ENVELOPES, HEADS, TAILS
from lakerunner.formats.written_times import SHAPES

_HEAD = """# Files as loggers write them

Files can be dropped into a raw prefix as loggers write them: OTLP, JSON, CSV, Parquet or plain text, uncompressed or
with gzip or zstd, in UTF-8 or UTF-16. The content decides what the format is; the name counts only where the content is
ambiguous.

- **JSON**: a record per line, an array, documents over several lines, or a batch (CloudTrail `Records`, CloudWatch
  `logEvents`, Loki `streams`, ...). Nested keys are joined by dots.
- **CSV**: only below a plausible header (names rather than values, each once) and if the rows are as wide as it is.
  Otherwise commas are text.
- **Text**: a record per line. Stack traces, and lines without a head in a file whose lines have one, belong to the line
  before them. Lines of JSON among the text are records of their own. Only logs may be text.

What is recognised goes to the columns of [logs](segments.md#logs); everything else becomes an attribute. A row whose
time is missing or cannot be read is kept with the time of its file, and counted under the reason `no_time`; a value
that cannot be read stays an attribute. Times without a zone are UTC.

A record of a metric is a sample; the keys that are no field are its labels. `type`, `kind`, `unit` and `description`
may be either. They describe the metric if the value is a metric type, a unit, or several words, and if a metric has
only one such value in the file. Otherwise they are labels, because series must not merge. `metric_type`, `metric_unit`,
`metric_description` and `help` are never labels.

## When a field is not found

Name the key, or the format, for a prefix of the bucket (or for an address, `s3://bucket/prefix`) in the setting
`formats.mapping`. The longest prefix wins. Several keys are separated by commas and tried in order, before the keys of
the tables below.

```yaml
formats:
  mapping: |
    logs-raw/legacy/  time=when message=what,text level=prio service=system
    logs-raw/dump/    format=text
```

Fields: {settings}. Formats: {formats}.

## Keys

Keys are compared without regard to case and to `_`, `-`, `.` and blanks: `trace_id` also stands for `traceId`,
`TraceID` and `trace.id`. The first key that a record has wins. A service, trace or span is also looked for in the
objects {wrappers};
the time, the level and the message in {bodies}.
A trace id of 64 bits is padded with zeros; a number, and any id of Datadog, is decimal.

This page is generated from the code by `make docs`.
"""
_LEVELS = """
## Levels

Names count in any case. Numbers are read on the scale that the key or the other keys of the record show.

| OTLP number | names |
|---|---|"""
_TIMES = """
## Times

Numbers are seconds, milliseconds, microseconds or nanoseconds, by their size. Written forms:
"""
_LINES = """
The year or the day that a time lacks is that of the file, or the one before if the time would be later than the file.

## Lines of text

Each line is compared with these, in this order. `tests/formats/loggers` has examples with their rows.
"""


def fields() -> str:
    """docs/formats/fields.md."""
    head = _HEAD.format(
        settings=_names(("format", *SETTING_NAMES)),
        formats=_names(tuple(str(name) for name in Format if name is not Format.EMPTY)),
        wrappers=_names(WRAPPERS),
        bodies=_names(BODIES),
    )
    parts = [head.rstrip("\n")]
    for signal, by_field in FIELDS.items():
        parts.append(f"\n### {signal}\n\n| field | keys, in order of preference |\n|---|---|")
        parts += [f"| `{name}` | {_names(keys)} |" for name, keys in by_field.items()]
    parts.append(_LEVELS)
    numbered: dict[int, list[str]] = {}
    for name, number in LEVEL_NUMBERS.items():
        numbered.setdefault(number, []).append(name)
    parts += [f"| {number} | {_names(tuple(sorted(numbered[number])))} |" for number in sorted(numbered)]
    parts.append("\n| scale | its numbers, as OTLP numbers |\n|---|---|")
    for scale, steps in SCALES.items():
        shown = "1 to 24" if scale == "otlp" else ", ".join(f"{level} = {number}" for level, number in steps.items())
        parts.append(f"| {scale} | {shown} |")
    parts += [_TIMES, *(f"- `{example}`" for example, _ in SHAPES), _LINES]
    groups = {"Around the line of a program": ENVELOPES, "Whole lines": HEADS, "After the time": TAILS}
    parts += [f"- {title}: {'; '.join(dialect.name for dialect in group)}" for title, group in groups.items()]
    return "\n".join(parts) + "\n"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
