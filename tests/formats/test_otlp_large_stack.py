from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakerunner.formats.otlp.large_stack import run_on_large_stack

ROOT = Path(__file__).parents[2]


class Panic(BaseException):
    """Stands for the panic of a Rust extension."""


@pytest.mark.parametrize("levels", [10, 1_000_000])
def test_results_and_errors_come_back(levels):
    assert run_on_large_stack(lambda: 5, levels) == 5
    with pytest.raises(KeyError):
        run_on_large_stack(lambda: {}["absent"], levels)


@pytest.mark.parametrize("levels", [10, 1_000_000])
def test_a_panic_becomes_an_exception(levels):
    def panic() -> None:
        raise Panic("index out of bounds")

    with pytest.raises(ValueError, match="index out of bounds"):
        run_on_large_stack(panic, levels)


def test_the_stack_size_of_other_threads_is_left_as_it_was():
    before = threading.stack_size()
    run_on_large_stack(lambda: None, 1_000_000)
    assert threading.stack_size() == before


_LIMITED = """
import resource, sys
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import LOGS
from tests.formats import otlp_samples

body = b"".join(batch.SerializeToString() for batch in otlp_samples.log_batches(400, seed=1, per_batch=400))
assert len(body) > 4_096
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1_024
# Less room than the large stack would take.
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
read = read_object(body, LOGS)
# An attack: groups within groups, as deep as the message is long.
deep = b"\\x0b" * 500_000 + b"\\x0c" * 500_000
try:
    read_object(deep, LOGS)
    sys.exit("the attack was read")
except BadInput:
    print(next(iter(read.tables.values())).num_rows)
"""


def test_where_address_space_is_limited_no_large_stack_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "400", done.stderr
