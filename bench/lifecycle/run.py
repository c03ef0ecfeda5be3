"""Run the parts of the benchmark. A part is a module of this folder with a function `measure(quick)`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import bench.lifecycle

PARTS = tuple(sorted(each.name for each in pkgutil.iter_modules(bench.lifecycle.__path__) if each.name != "run"))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench lifecycle",
        description=bench.lifecycle.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="use small inputs")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be repeated")
    options = parser.parse_args()
    for name in options.only or PARTS:
        part = importlib.import_module(f"bench.lifecycle.{name}")
        for line in part.measure(options.quick):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0
