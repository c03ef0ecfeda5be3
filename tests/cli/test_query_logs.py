"""`lakerunner query logs`, `volume`, `fields` and `patterns`, as a user runs them, against an API over log records."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from lakerunner.cli import render
from lakerunner.cli.main import app
from lakerunner.cli.point_output import Point, write_plot
from lakerunner.cli.querying import points_of
from lakerunner.cli.render import DataFormat, check_terminal, shows_colour
from lakerunner.model.errors import BadInput
from tests.cli.conftest import Done
from tests.query.worker_lake import WorkerLake
from tests.serve.conftest import lake  # noqa: F401  (fixture)
from tests.serve.log_requests import S, log_request, org_with_logs
from tests.serve.served import AuthOf, Served, serving

NOW_S = int(time.time()) // 60 * 60 - 1_200
RANGE = ("--start", str(NOW_S), "--end", str(NOW_S + 600))
#: More kinds of lines than an answer shows.
KINDS = 320
WORDS = ["".join(chr(97 + int(digit)) for digit in f"{number:03d}") for number in range(KINDS)]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def api(lake: WorkerLake) -> Iterator[Served]:  # noqa: F811
    before = [(NOW_S - 900) * S + number for number in range(KINDS)]
    # Each word three times, so that the rarest line of the time before is the one that occurs later too.
    known = [(at, f"{word} happened") for word in WORDS for at in before[:3]] + [(before[0], "rare happened")]
    later = [((NOW_S + 10) * S, "rare happened"), ((NOW_S + 20) * S, "fresh happened")]
    requests = [log_request("cart", known), log_request("cart", later, level="ERROR")]
    with serving(lake, AuthOf(org_with_logs(lake, requests))) as serve:
        yield serve()


def query(api: Served, *args: str) -> Done:
    done = CliRunner().invoke(app, ["query", *args, "--url", api.url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


def test_nothing_is_an_answer_too(api: Served) -> None:
    absent = '{service_name="absent"}'
    for verb in ("logs", "volume", "fields", "patterns"):
        done = query(api, verb, absent, *RANGE)
        assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 0 if verb == "logs" else 1), verb
    assert query(api, "volume", absent, *RANGE, "--plot") == Done(0, "", "")


def test_a_volume_by_what_is_no_label_of_a_stream(api: Served) -> None:
    done = query(api, "volume", *RANGE, "--by", "service_name", "--by", "severity_text")
    assert done.code == 0 and done.out.splitlines() == ["bytes  labels"]
    assert "sum by (service_name, severity_text) (bytes_over_time({…}[1h]))" in done.err


def test_a_volume_at_one_time_is_plotted(api: Served) -> None:
    done = query(api, "volume", *RANGE, "--plot", "--step", "1d")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == '▁  min 27  max 27  last 27  {service_name="cart"}'


def _plotted(times_s: Sequence[int], out: Any) -> list[str]:
    write_plot([Point(at * 1_000, '{a="b"}', {}, float(at), None) for at in times_s], out)
    return [line.split("  min")[0] for line in out.getvalue().splitlines()]


def test_plots_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    times_s = range(0, 6_000, 10)
    assert len(_plotted(times_s, io.StringIO())[0]) == 60
    screen = Screen()
    assert 10 <= len(_plotted(times_s, screen)[0]) < 40
    assert {len(line) <= 60 for line in screen.getvalue().splitlines()} == {True}
    # Few points stand side by side; what is missing between them shows.
    assert _plotted([0, 10, 20, 30], io.StringIO())[0] == "▁▃▆█"
    assert _plotted([0, 10, 40, 50], io.StringIO())[0].count(" ") == 2


def test_a_pattern_that_was_rare_before_is_not_new(api: Served) -> None:
    """The time before has more patterns than an answer shows."""
    done = query(api, "patterns", *RANGE)
    assert {line.split()[-2] for line in done.out.splitlines()[1:]} == {"rare", "fresh"}
    new = query(api, "patterns", *RANGE, "--new-since", "1h")
    assert [line.split() for line in new.out.splitlines()[1:]] == [["1", "error", "fresh", "happened"]]
    assert query(api, "patterns", *RANGE, "--new-since", "1m").out == done.out


@pytest.mark.parametrize("kind", ["json", "csv", "arrow", "parquet"])
def test_chosen_labels_in_every_format(api: Served, kind: str) -> None:
    args = ["logs", '{service_name="cart"} |= "fresh"', *RANGE, "--field", "detected_level", "--field", "nope"]
    done = CliRunner().invoke(app, ["query", *args, "-o", kind, "--url", api.url])
    assert done.exit_code == 0, done.stderr
    body = done.stdout_bytes
    match kind:
        case "json":
            assert orjson.loads(body)["labels"] == {"detected_level": "error"}
        case "csv":
            assert body.decode().splitlines()[0] == "timestamp,line,detected_level,nope"
            assert body.decode().splitlines()[1].endswith("fresh happened,error,")
        case _:
            read = (
                pa.ipc.open_stream(body).read_all() if kind == "arrow" else pa.parquet.read_table(pa.BufferReader(body))
            )
            (row,) = read.drop_columns("timestamp").to_pylist()
            assert row == {"line": "fresh happened", "detected_level": "error", "nope": None}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("logs", '{service_name="cart"}', "--plot"), "cannot plot entries"),
        (("logs", '{service_name="cart"}', "--plot", "-o", "csv"), "cannot plot as csv"),
        (("volume", "--plot", "-o", "json"), "cannot plot as json"),
        (("volume", "--step", "1m"), "without --plot"),
        (("logs", '{service_name="cart"}', "--follow", "--end", "now-1h"), "cannot follow until --end"),
        (("logs", 'rate({service_name="cart"}[1m])', "--follow"), "cannot tail a metric query"),
        (("logs", '{service_name="cart"}', "--start", "tomorrow"), "now-2h or Unix seconds"),
    ],
)
def test_misuse(api: Served, args: Sequence[str], said: str) -> None:
    done = query(api, *args)
    assert done.code == 2 and said in done.err


def test_another_server_is_named(api: Served) -> None:
    """Not `Not Found`: whoever gave the address of another role must learn which is wrong."""
    for verb in ("logs", "volume"):
        done = CliRunner().invoke(app, ["query", verb, '{service_name="cart"}', "--url", f"{api.url}/elsewhere"])
        assert done.exit_code == 1
        assert f"cannot query {api.url}/elsewhere" in done.stderr and "query-api" in done.stderr


def test_dates_are_times_too(api: Served) -> None:
    def exported(*times: str) -> str:
        return query(api, "logs", '{service_name="cart"}', *times, "-o", "json", "--limit", "0").out

    midnight = NOW_S // 86_400 * 86_400
    date = time.strftime("%Y-%m-%d", time.gmtime(midnight))
    assert exported("--start", date) == exported("--start", str(midnight)) != ""


def test_help_names_the_variables() -> None:
    for verb in ("logs", "metrics"):
        text = CliRunner().invoke(app, ["query", verb, "--help"], env={"COLUMNS": "200"}).stdout
        assert "LAKERUNNER_API_KEY" in text and "LAKERUNNER_CONFIG" in text


class _Terminal:
    """A terminal that keeps what is written to it."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is held back."""


def test_progress_and_points_share_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    point = {"timestamp": 0, "label": "{}", "tags": {}, "value": 1.0}

    def frames() -> Iterator[tuple[str, Any]]:
        for group in (1, 2):
            yield "result", point
            yield "progress", {"group": group, "groups": 2, "rows": 7, "bytes": 9}

    for shown in points_of(frames()):
        terminal.write(f"{shown.text}\n")
    # The line of progress is taken away before the next point is written.
    assert re.sub(r"[^\n]*\r\x1b\[K", "", terminal.text) == "1\n1\n"
    assert "part 1 of 2" in terminal.text


def test_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render.sys, "stdout", _Terminal())
    for kind in (DataFormat.ARROW, DataFormat.PARQUET):
        with pytest.raises(BadInput, match=f"> FILE.{kind}"):
            check_terminal(kind)
    for kind in (DataFormat.TEXT, DataFormat.JSON, DataFormat.CSV):
        check_terminal(kind)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shows_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colour()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "json", "csv", "arrow", "parquet"])
def test_a_full_disk_is_one_line(api: Served, kind: str) -> None:
    command = [
        sys.executable,
        "-m",
        "lakerunner",
        "query",
        "logs",
        '{service_name="cart"}',
        "--start",
        str(NOW_S - 3_600),
    ]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "--limit", "0", "-o", kind, "--url", api.url],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "lakerunner: cannot write everything: No space left on device; what was written is not complete"
    ]


@pytest.mark.slow
def test_on_a_terminal(api: Served, tmp_path: Path) -> None:
    def lines(*args: str, to_file: bool = False) -> list[str]:
        own, theirs = pty.openpty()
        command = [sys.executable, "-m", "lakerunner", "query", "logs", *args, *RANGE, "--url", api.url]
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith(("LAKERUNNER_", "NO_COLOR"))
        }
        with (tmp_path / "out").open("wb") as file:
            target = file.fileno() if to_file else theirs
            process = subprocess.Popen(command, stdin=theirs, stdout=target, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b""
        # The terminal is gone when the last process that has it ends.
        with contextlib.suppress(OSError):
            while part := os.read(own, 65_536):
                shown += part
        process.wait(TIMEOUT_S)
        os.close(own)
        return [line.replace("\r\x1b[K", "") for line in shown.decode().split("\r\n")]

    assert "\x1b[31merror\x1b[0m  cart  fresh happened" in lines('{service_name="cart"}')[0]
    assert "no entries from" in lines('{service_name="absent"}')[0]
    exported = lines('{service_name="cart"}', "-o", "parquet", to_file=True)
    assert exported[-2].endswith("2 entries")
    assert (tmp_path / "out").read_bytes()[:4] == b"PAR1"
