"""`lakerunner query`, as a user runs it, against a query API over a small lake."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterator

import orjson
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from lakerunner.cli.main import app
from lakerunner.cli.point_output import sparkline
from lakerunner.serve.auth import Authenticator
from tests.cli.conftest import Done, run_lakerunner
from tests.query.lake_of_logs import write_logs
from tests.query.worker_lake import WorkerLake
from tests.serve.conftest import lake, open_auth, two_orgs  # noqa: F401  (fixtures)
from tests.serve.served import END_S, START_S, AuthOf, Served, TwoOrgs, serving

RANGE = ("--start", str(START_S), "--end", str(START_S + 60), "--step", "30s")


@pytest.fixture(scope="module")
def api(lake: WorkerLake, open_auth: Authenticator) -> Iterator[Served]:  # noqa: F811
    with serving(lake, open_auth) as serve:
        yield serve()


def run(*args: str, env: dict[str, str] | None = None) -> Done:
    """Run in this process, because a new one needs seconds for its imports. One test below does start a process."""
    done = CliRunner().invoke(app, ["query", *args], env=env or {})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


def query(api: Served, *args: str) -> Done:
    return run(*args, "--url", api.url)


def test_text_and_plot(api: Served) -> None:
    done = query(api, "metrics", 'up{job="job0"}', *RANGE)
    assert (done.code, done.err) == (0, "")
    line = '2023-11-14T22:13:20Z               1  up{code="200", job="job0"}'
    assert done.out.splitlines()[0] == line
    assert len(done.out.splitlines()) == 3
    plot = query(api, "metrics", "sum(requests_total)", "--plot", "--start", str(START_S), "--end", str(END_S))
    assert plot.code == 0
    assert "▁" in plot.out
    assert "█" in plot.out
    assert "max 1428" in plot.out
    assert sparkline([(0, 5.0)], 0, 0, 3) == "▁  "


def test_histograms_and_nan_are_plotted_too(api: Served) -> None:
    histogram = query(api, "metrics", "latency", *RANGE, "--plot").out.splitlines()
    assert len(histogram) == 2
    assert "▁" in histogram[0] and "count min 3  max 3  last 3" in histogram[0]
    nan = query(api, "metrics", 'up{job="job0"} * NaN', *RANGE, "--plot").out.splitlines()
    assert nan[0].split() == ["min", "nan", "max", "nan", "last", "nan", '{code="200",', 'job="job0"}']
    assert query(api, "series", "up", *RANGE[:4]).out.splitlines()[0] == 'up{code="200", job="job0"}'


def test_json_and_csv(api: Served) -> None:
    done = query(api, "metrics", "requests_total", *RANGE, "-o", "json")
    points = [orjson.loads(line) for line in done.out.splitlines()]
    assert len(points) == 9
    assert points[-1]["value"] == 12.0
    assert points[-1]["tags"]["job"] == "job2"
    rows = list(csv.DictReader(io.StringIO(query(api, "metrics", "requests_total", *RANGE, "-o", "csv").out)))
    assert [row["value"] for row in rows[-3:]] == ["4", "8", "12"]
    assert set(rows[0]) == {"timestamp", "value", "__name__", "code", "job"}


def test_arrow_and_parquet(api: Served) -> None:
    tables = []
    for kind in ("arrow", "parquet"):
        args = ["query", "metrics", "latency", *RANGE, "-o", kind, "--url", api.url]
        raw = pa.BufferReader(CliRunner().invoke(app, args).stdout_bytes)
        tables.append(pa.ipc.open_stream(raw).read_all() if kind == "arrow" else pa.parquet.read_table(raw))
    assert tables[0].column_names == ["timestamp", "value", "histogram", "__name__", "job"]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert tables[0].num_rows == 3


def test_labels_series_and_explain(api: Served) -> None:
    times = ("--start", str(START_S), "--end", str(END_S))
    assert query(api, "labels", *times, "-o", "json").json() == [
        {"label": name} for name in ("__name__", "code", "job")
    ]
    assert query(api, "labels", "job", "--match", "latency", *times, "-o", "json").json() == [{"job": "job0"}]
    assert query(api, "series", "latency", *times, "-o", "json").json() == [{"__name__": "latency", "job": "job0"}]
    explained = query(api, "explain", "sum(up)", *RANGE).json()
    assert explained["segmentsRead"] == 1
    assert explained["cache"] == "bypass"


def test_warnings_go_beside(api: Served) -> None:
    done = query(api, "metrics", "rate(up[1m])", *RANGE, "-o", "csv")
    assert done.code == 0
    assert "might not be a counter" in done.err
    assert "counter" not in done.out


def test_errors_point_at_the_token(api: Served) -> None:
    done = query(api, "metrics", "sum(rate(up[5m)")
    assert done.code == 2
    caret = done.err.splitlines()[-1]
    assert done.err.splitlines()[-2][caret.index("^")] == ")"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("metrics", "up", "--start", "tomorrow"), 2, "--start"),
        (("metrics", "up", "--since", "soon"), 2, "soon"),
        (("metrics", "up", "--start", "10", "--end", "5"), 2, "--since"),
        (("metrics", "up", "--plot", "-o", "csv"), 2, "--plot"),
        (("metrics", "up", "--start", "0", "--end", "99999", "--step", "1s"), 1, "api.max_steps"),
        (("metrics", "up * on (code) up", *RANGE), 1, "many-to-many"),
        (("series", "up{"), 2, "1:4"),
    ],
)
def test_misuse(api: Served, args: tuple[str, ...], code: int, said: str) -> None:
    done = query(api, *args)
    assert (done.code, "Traceback" in done.err) == (code, False)
    assert said in done.err
    assert done.out == ""


def test_nobody_there() -> None:
    done = run_lakerunner("query", "metrics", "up", "--url", "http://127.0.0.1:1")
    assert done.code == 1
    assert "lakerunner serve" in done.err
    assert run("labels", "--url", "file:///etc/passwd").code == 2


def test_the_key(two_orgs: TwoOrgs) -> None:  # noqa: F811
    with serving(two_orgs.lake) as serve:
        served = serve(two_orgs.auth)
        denied = query(served, "labels")
        assert denied.code == 1
        assert "it has no API key" in denied.err
        env = {"LAKERUNNER_API_KEY": two_orgs.secrets["both"], "LAKERUNNER_API_URL": served.url}
        times = ("--start", str(START_S), "--end", str(END_S), "-o", "json")
        for org, job in (("ours", "our_job0"), ("theirs", "secret_job0")):
            done = run("labels", "job", *times, "--org", org, env=env)
            assert done.json()[0] == {"job": job}


@pytest.fixture(scope="module")
def logs(lake: WorkerLake) -> Iterator[Served]:  # noqa: F811
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    with serving(lake) as serve:
        yield serve(AuthOf(org_id))


ROWS = ("rows", "logs", "--start", "1970-01-01T00:00:00Z", "--end", "1970-01-01T06:00:00Z")


def test_rows_as_text(logs: Served) -> None:
    done = query(
        logs, *ROWS, "--where", 'service_name = "s1" and severity_number >= 17', "--limit", "2", "--attributes"
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "1970-01-01T05:25:00.000000001Z  s1  ERROR  hour 5 half 1 number 25  attr_n=5",
        "1970-01-01T05:25:00Z  s1  ERROR  hour 5 half 0 number 25  attr_n=5",
    ]


@pytest.mark.parametrize("kind", ["json", "csv", "arrow", "parquet"])
def test_rows_in_other_formats(logs: Served, kind: str) -> None:
    args = ["query", *ROWS, "--limit", "0", "--oldest-first", "-o", kind, "--url", logs.url]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.stderr
    body = done.stdout_bytes
    match kind:
        case "json":
            rows = [orjson.loads(line)["message"] for line in body.splitlines()]
        case "csv":
            rows = [row["message"] for row in csv.DictReader(io.StringIO(body.decode()))]
        case "arrow":
            rows = pa.ipc.open_stream(body).read_all().column("message").to_pylist()
        case _:
            rows = pa.parquet.read_table(pa.BufferReader(body)).column("message").to_pylist()
    assert len(rows) == 480
    assert rows[:2] == ["hour 0 half 0 number 0", "hour 0 half 1 number 0"]


def test_a_wrong_filter_is_underlined(logs: Served) -> None:
    done = query(logs, *ROWS, "--where", "severity_number >= and")
    assert done.code == 2
    assert done.err.splitlines()[-1].rstrip().endswith("^^^")
