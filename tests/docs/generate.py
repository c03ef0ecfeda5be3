"""Writes the parts of docs/ that are made from the code. `make docs` runs it; a test compares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lakerunner.runtime.settings_table import TABLE, sections

DOCS = Path(__file__).parents[2] / "docs"

_CONFIGURATION_HEAD = """# Configuration

Every setting can be given in a YAML file (`--config`, or `LAKERUNNER_CONFIG`), as an environment variable, or as
`--set NAME=VALUE`; the later wins. Unknown names and bad values are refused, with the nearest right name.
`lakerunner config show` prints what is in force, `lakerunner config check` checks without starting anything.

```yaml
index:
  url: postgresql://lake@db.example.com/lrdb
bus:
  kind: kafka
  brokers: kafka.example.com:9092
store:
  url: s3://my-lake
```

This page is made from the table in `src/lakerunner/runtime/settings.py` by `make docs`.
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


#: Page -> what makes it.
PAGES: dict[str, Callable[[], str]] = {"configuration.md": configuration}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
