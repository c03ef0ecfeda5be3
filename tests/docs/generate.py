"""Generate the pages of docs/ that come from the code. `make docs` writes them; a test compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lakerunner.model.column import Column
from lakerunner.model.signal import Table
from lakerunner.model.signals import METRICS, SIGNALS
from lakerunner.model.signals.tiers import TIER_METRICS
from lakerunner.runtime.settings.table import TABLE, sections
from tests.docs.fields_page import fields

DOCS = Path(__file__).parents[2] / "docs"

_CONFIGURATION_HEAD = """# Configuration

Every setting can be given in a YAML file (`--config`, or `LAKERUNNER_CONFIG`), as an environment variable, or as
`--set NAME=VALUE`. The command line overrides the environment, which overrides the file. Unknown names and invalid
values are refused; the error suggests the closest valid name. `lakerunner config show` prints the effective settings,
and `lakerunner config check` checks them without starting anything. A secret may be in a file:
`LAKERUNNER_INDEX_URL_FILE=/run/secrets/index-url`, or `url_file:` in the YAML file.

```yaml
index:
  url: postgresql://lake@db.example.com/lrdb
bus:
  kind: kafka
  brokers: kafka.example.com:9092
store:
  url: s3://my-lake
```

This page is generated from `src/lakerunner/runtime/settings/` by `make docs`.
"""


def configuration() -> str:
    """docs/configuration.md."""
    parts = [_CONFIGURATION_HEAD]
    for section_name, section in sections():
        parts.append(f"\n## {section_name}\n\n{(section.__doc__ or '').strip()}\n")
        parts.append("| setting | variable | takes | default | |\n|---|---|---|---|---|")
        for setting in TABLE.values():
            if setting.name.startswith(section_name + "."):
                default = f"`{setting.default_text}`" if setting.default_text else "empty"
                type_name = setting.type_name.replace("|", "or")
                parts.append(f"| `{setting.name}` | `{setting.env}` | {type_name} | {default} | {setting.sentence} |")
    return "\n".join(parts) + "\n"


_SEGMENTS_HEAD = """# Segments

A segment is an immutable, sorted part of a signal: one Parquet object, or two for metrics. Its key is

```
db/{org}/{collector}/{yyyymmdd}/{signal}/{HH}/tbl_{id}.parquet
   │     │           │          │        │        └ UUID version 7: sorts by creation time
   │     │           │          │        └ hour of the first event time, UTC
   │     │           │          └ logs, metrics or traces
   │     │           └ day of the first event time, UTC
   │     └ collector that sent it, percent-encoded if needed
   └ UUID of the org
```

The files are plain Parquet: ZSTD, page index, page checksums, statistics, bloom filters on the columns marked
below and on up to four attributes whose values look like ids (long and distinct), and the sort order in the file
metadata. [reading.md](reading.md) shows how to read them. Columns marked "needles" also have filters that exclude row
groups in a search for a part of a text ([the decision](../decisions/0021-needle-filters.md)). They lie before the
footer, where other readers do not look, and take at most 8% of the file. For the column marked "runs", by which rows
are sorted first, the key-value metadata `lakerunner.runs` says where the rows of each value lie in each row group ([the
decision](../decisions/0073-runs-of-services.md)).

An object under such a key is valid only while the index lists it as live. Files of a failed attempt remain until they
are swept. Do not read them; Lakerunner never does.

A segment holds the rows of one hour. Rows far from the present may share a segment of a day, of a month or wider, so
that scattered times make few segments ([the decision](../decisions/0013-late-rows.md)). Its key has the day and hour of
its first row: to read one day without Lakerunner, filter by the event time and do not rely on the folder alone.

## Times

A `timestamp[ns]` column below is stored as microseconds under its name, and the remainder (0 to 999) under
`{name}_nanos`. Spark does not open files with nanoseconds, and no precision may be lost; see [the
decision](../decisions/0008-nanoseconds-beside-microseconds.md).

## Attributes

Logs and traces have a column for every attribute key: `resource_*`, `scope_*` and `attr_*`, in lower case, with each
run of other characters replaced by one `_` (`a..b` and `A.b` are `attr_a_b`). At most 256 keys get a column of their
own; the others are in `attributes_overflow`, a map from the name that the column would have to the value as text. The
key-value metadata of the file holds the original keys, the usual one of each column first.

A list of key-value pairs in an attribute of a log record becomes attributes of their own, named by their path: `b`
within `a` is `attr_a_b`. Arrays, and such lists in traces, are JSON. Of two keys of one record that have the same
column, the last one gets it; the other is in the overflow, under its original key.

A column has the same type in all segments of an org and signal ([the
decision](../decisions/0016-one-type-per-attribute.md)). The first segment that has the column decides:

| first values | type | later values that fit |
|---|---|---|
| numbers | `double` | numbers |
| whole numbers, one of them beyond ±2^53 | `int64` | whole numbers |
| booleans | `bool` | booleans |
| texts, or several of the above | `string` | everything, numbers as text |

A text that is exactly what we would write for a number or boolean (`500`, but not `0500` or `5e2`) fits into their
columns. A value that does not fit, and a whole number beyond ±2^53 in a `double` column, goes to
`attributes_overflow` unchanged, as text. No digit is lost, and `lakerunner query rows` finds a value wherever it is.
An org has at most 4,096 columns per signal; attributes that come later stay in the overflow. Segments of releases
before this rule keep their types.

Columns marked "if any" are missing from segments in which no row has a value
([why they exist](../decisions/0023-logs-as-loki-shows-them.md)).

This page is generated from `src/lakerunner/model/signals/` by `make docs`.
"""


_TIERS_HEAD = """Segments of tiers ([rollups](../rollups.md)) are in the folder `rollup-{tier}s` in place of the
collector's. They have the columns above and these besides, which are null but in the row of a bucket's last sample.
The file's metadata says which tier it is (`lakerunner.tier_s`)."""


def segments() -> str:
    """docs/formats/segments.md."""
    parts = [_SEGMENTS_HEAD]
    for signal in SIGNALS:
        parts.append(f"\n## {signal.name}\n")
        parts.append(f"Event time: `{signal.time_column}`. Kept in the index for pruning: {_names(signal.pruning)}.")
        if signal.dedup_key:
            parts.append(f"Rows with equal {_names(signal.dedup_key)} are duplicates; one is kept.")
        parts += [line for table in signal.tables for line in _table(table, table.columns)]
        if signal is METRICS:
            parts.append(f"\n## {signal.name}: tiers\n\n{_TIERS_HEAD}")
            for table, raw in zip(TIER_METRICS.tables, signal.tables, strict=True):
                parts += _table(table, table.columns[len(raw.columns) :])
    return "\n".join(parts) + "\n"


def _table(table: Table, columns: Sequence[Column]) -> list[str]:
    parts = [f"\n### `tbl_{{id}}{table.suffix}.parquet`, sorted by {_names(table.sort_key)}\n"]
    parts.append("| column | type | | |\n|---|---|---|---|")
    for column in columns:
        marks = ", ".join(
            mark
            for mark, holds in (
                ("bloom", column.bloom),
                ("needles", column.needles),
                ("runs", column.runs),
                ("never null", not column.nullable),
                ("if any", column.sparse),
            )
            if holds
        )
        kind = str(column.type).replace("|", "or")
        parts.append(f"| `{column.name}` | `{kind}` | {marks} | {column.doc} |")
    if table.attributes:
        parts.append("| `resource_*`, `scope_*`, `attr_*` | as sent | | Attributes, one column each. |")
    return parts


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


#: Page -> the function that generates it.
PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "formats/segments.md": segments,
    "formats/fields.md": fields,
}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
