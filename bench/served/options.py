"""The command line of a benchmark of served lakes."""

from __future__ import annotations

import argparse
from pathlib import Path


def read_options(name: str, description: str | None, quick: str) -> argparse.Namespace:
    """Read the arguments. `quick` says what `--quick` does."""
    parser = argparse.ArgumentParser(
        prog=f"bench {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--only", action="append", default=[], help="run cases whose name contains this; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns per server and case; the median counts")
    parser.add_argument(
        "--cold", type=int, nargs="?", const=1, default=0, help="also measure this many turns after a restart"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of the measured lakerunner, such as query_row_cache_bytes=0; may be repeated",
    )
    parser.add_argument("--keep", type=Path, help="folder that keeps the loaded servers for the next run")
    return parser.parse_args()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.replace(".", "_"), value
