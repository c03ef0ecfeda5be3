"""Workers over sockets of this machine: what holds over Flight holds here, and who cannot use one uses Flight."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit, Unavailable
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import TimeRange
from lakerunner.query.fanout.answer import Check, EvaluateAnswer
from lakerunner.query.fanout.budget import Budgets
from lakerunner.query.fanout.errors import Draining
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.protocol import (
    CANCEL,
    EvaluateRequest,
    Fragment,
    Kind,
    ScanRequest,
    SegmentObjects,
    read_document,
    read_request,
)
from lakerunner.query.fanout.socket_frames import Frame, FrameReader, frame, socket_path
from lakerunner.query.language import Stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.worker.server import WorkerServer
from lakerunner.store import keys

TOKEN = "a shared secret"


@dataclass
class Toy:
    """A language whose fragments are made here. It stands for all of them."""

    made: Callable[[Check], Iterator[pa.RecordBatch]]
    name: str = "toy"

    def evaluate(self, payload: bytes, source: Any, check: Check) -> Stream:
        return Stream(self.made(check), dict)


@dataclass
class _Workers:
    budgets: Budgets = field(default_factory=Budgets)

    def close(self) -> None: ...


class Asked:
    """A worker with a socket, and whoever asks it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.server = WorkerServer("grpc://127.0.0.1:0", _Workers(), TOKEN, 4, 1 << 30)  # type: ignore[arg-type]
        self.server.listen_in(folder)
        self.address = f"127.0.0.1:{self.server.port}"
        self.workers = FlightWorkers(lambda: [self.address], TOKEN, data_dir=folder)
        self.over_flight = 0
        self._monkeypatch = monkeypatch
        client = self.workers._connections.client

        def noting(address: str) -> Any:
            self.over_flight += 1
            return client(address)

        monkeypatch.setattr(self.workers._connections, "client", noting)

    def makes(self, made: Callable[[Check], Iterator[pa.RecordBatch]]) -> None:
        self._monkeypatch.setattr("lakerunner.query.fanout.fragment.language", lambda _: Toy(made))

    def stream(self, check: Check = lambda: None, **changes: Any) -> list[pa.RecordBatch | EvaluateAnswer]:
        return list(self.workers.stream(replace(_request(), **changes), check))

    def raw(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        connection.connect(str(socket_path(self.folder, self.server.port)))
        return connection


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    one = Asked(tmp_path, monkeypatch)
    yield one
    one.workers.close()
    one.server.shutdown()


def _request() -> EvaluateRequest:
    return EvaluateRequest(
        org_id=uuid.uuid4(),
        query_id=uuid.uuid4(),
        segments=(),
        deadline_s=time.monotonic() + 60,
        max_bytes=1 << 30,
        fragment=Fragment("toy", b"{}", (), rows=True),
    )


def _numbers(count: int) -> pa.RecordBatch:
    texts = pa.array([str(number % 7) for number in range(count)]).dictionary_encode()
    return pa.RecordBatch.from_pydict({"n": np.arange(count), "text": texts})


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("rows", [[], [3], [100_000, 1], [1] * 20])
def test_all_batches_and_the_note_arrive(asked: Asked, rows: list[int], small: bool) -> None:
    asked.makes(lambda _: iter([_numbers(count) for count in rows]))
    for _ in range(2):
        *batches, answer = asked.stream(small=small)
        assert [batch.to_pydict() for batch in batches if isinstance(batch, pa.RecordBatch)] == [
            _numbers(count).to_pydict() for count in rows
        ]
        assert isinstance(answer, EvaluateAnswer)
        assert answer.note["tally"]["rows"] == 0
    assert not asked.over_flight


def test_one_connection_serves_one_caller_after_the_other(asked: Asked) -> None:
    asked.makes(lambda _: iter([_numbers(3)]))
    for _ in range(5):
        asked.stream(small=True)
    assert len(asked.server._socket._connections) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error", [BadInput("no"), LimitHit("too much"), Draining("later"), Unavailable("gone")], ids=lambda e: e.code
)
@pytest.mark.parametrize("sockets", [True, False])
def test_an_error_has_the_class_and_text_that_it_has_over_flight(
    asked: Asked, error: LakeError, sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(check: Check) -> Iterator[pa.RecordBatch]:
        yield _numbers(1)
        raise error

    asked.makes(made)
    if not sockets:
        monkeypatch.setattr(asked.workers._connections.sockets, "connection", lambda _: None)
    with pytest.raises(type(error)) as raised:
        asked.stream()
    where = f"cannot read from worker {asked.address}: " if isinstance(error, Unavailable) else ""
    assert str(raised.value) == f"{where}{error}"
    assert bool(asked.over_flight) != sockets


def _endless(begun: threading.Event, ended: threading.Event, check: Check) -> Iterator[pa.RecordBatch]:
    begun.set()
    try:
        while not ended.is_set():
            check()
            time.sleep(0.01)
    finally:
        ended.set()
    yield _numbers(1)


@pytest.mark.parametrize("small", [False, True])
def test_an_evaluation_that_nobody_waits_for_ends_within_a_second(asked: Asked, small: bool) -> None:
    begun, ended = threading.Event(), threading.Event()
    asked.makes(lambda check: _endless(begun, ended, check))

    def gone() -> None:
        if begun.is_set():
            raise LimitHit("the client has gone")

    with pytest.raises(LimitHit, match="gone"):
        asked.stream(gone, small=small)
    assert ended.wait(1.0), "the worker still evaluates"
    assert not asked.over_flight


@pytest.mark.parametrize("small", [False, True])
def test_an_evaluation_out_of_time_ends(asked: Asked, small: bool) -> None:
    begun, ended = threading.Event(), threading.Event()
    asked.makes(lambda check: _endless(begun, ended, check))
    with pytest.raises(LimitHit, match="time is over"):
        asked.stream(small=small, deadline_s=time.monotonic() + 0.3)
    assert ended.wait(1.0), "the worker still evaluates"


def test_a_cancel_ends_an_evaluation(asked: Asked) -> None:
    begun, ended = threading.Event(), threading.Event()
    asked.makes(lambda check: _endless(begun, ended, check))
    query_id = uuid.uuid4()
    failures: list[LakeError] = []

    def ask() -> None:
        try:
            asked.stream(query_id=query_id, small=True)
        except LakeError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(5)
    with flight.connect(f"grpc://{asked.address}") as client:
        list(client.do_action(flight.Action(CANCEL, orjson.dumps({"token": TOKEN, "query": str(query_id)}))))
    assert ended.wait(1.0), "the worker still evaluates"
    asking.join(5)
    assert "cancelled" in str(failures[0])


def test_a_slow_client_pauses_the_evaluation(asked: Asked) -> None:
    made = 0

    def batches(check: Check) -> Iterator[pa.RecordBatch]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield _numbers(100_000)

    asked.makes(batches)
    parts = asked.workers.stream(_request(), lambda: None)
    next(parts)
    time.sleep(0.3)
    assert made < 20
    assert sum(isinstance(part, pa.RecordBatch) for part in parts) == 99


def test_a_worker_that_drains_takes_no_more(asked: Asked) -> None:
    asked.makes(lambda _: iter([_numbers(3)]))
    asked.stream()
    asked.server.drain()
    with pytest.raises(Draining, match="ending what it has"):
        asked.stream()


def test_a_worker_that_stops_within_an_answer_is_unavailable(asked: Asked) -> None:
    begun, ended = threading.Event(), threading.Event()
    asked.makes(lambda check: _endless(begun, ended, check))
    stopping = threading.Thread(target=lambda: (begun.wait(5), asked.server._socket.close()))  # type: ignore[union-attr]
    stopping.start()
    with pytest.raises(LakeError):
        asked.stream()
    stopping.join()
    assert ended.is_set()


def test_who_finds_no_socket_uses_flight(asked: Asked) -> None:
    asked.makes(lambda _: iter([_numbers(3)]))
    asked.stream()
    assert asked.over_flight == 0
    # The connection that was kept is closed, and a file without a listener is left, as after a kill.
    asked.server._socket.close()  # type: ignore[union-attr]
    path = socket_path(asked.folder, asked.server.port)
    assert path is not None
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    batch, _ = asked.stream()
    assert isinstance(batch, pa.RecordBatch)
    before = asked.over_flight
    assert before > 0
    asked.server.listen_in(asked.folder)
    asked.stream()
    assert asked.over_flight == before, "the socket of a worker that came back is used"


def test_a_wrong_token_is_denied(asked: Asked) -> None:
    workers = FlightWorkers(lambda: [asked.address], "guessed", data_dir=asked.folder)
    with pytest.raises(Denied, match="token is not its own"):
        list(workers.stream(_request(), lambda: None))
    workers.close()


def test_a_ticket_cannot_reach_into_another_org(asked: Asked) -> None:
    foreign = SegmentObjects(uuid.uuid4(), (f"db/{uuid.uuid4()}/20260101/logs/1/tbl_1.parquet",))
    with pytest.raises(BadInput, match="not of org"):
        asked.stream(segments=(foreign,))


def _scan() -> bytes:
    request = _request()
    scan = ScanRequest(
        org_id=request.org_id, query_id=request.query_id, segments=(), deadline_s=request.deadline_s, max_bytes=1,
        kind=Kind.SAMPLES, leaf=Leaf.of_samples((), 0, 1),
    )  # fmt: skip
    return scan.to_ticket(TOKEN)


_NO_EVALUATIONS = {
    "empty": b"",
    "text": b"nothing",
    "list": b"[]",
    "token alone": b'{"token": "%s"}' % TOKEN.encode(),
    "scan": _scan(),
}


@pytest.mark.parametrize("ticket", _NO_EVALUATIONS.values(), ids=_NO_EVALUATIONS)
def test_a_ticket_that_is_none_is_refused_and_the_connection_goes_on(asked: Asked, ticket: bytes) -> None:
    with asked.raw() as connection:
        frames = FrameReader(connection)
        for _ in range(2):
            connection.sendall(frame(Frame.TICKET, ticket))
            found = frames.next()
            assert found is not None
            assert found[0] is Frame.ERROR


@pytest.mark.parametrize(
    "sent",
    [b"\xff" * 64, frame(Frame.NOTE, b"{}"), frame(Frame.TICKET, b"half")[:-1]],
    ids=["noise", "note", "half a ticket"],
)
def test_what_is_no_ticket_ends_the_connection(asked: Asked, sent: bytes) -> None:
    with asked.raw() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert FrameReader(connection).next() is None


def test_a_path_that_is_too_long_means_flight(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    assert socket_path(deep, 1) is None


def test_the_socket_is_private_and_goes_with_its_worker(asked: Asked) -> None:
    path = socket_path(asked.folder, asked.server.port)
    assert path is not None
    assert path.stat().st_mode & 0o077 == 0
    asked.server._socket.close()  # type: ignore[union-attr]
    assert not path.exists()


def test_segments_of_a_ticket_are_of_its_org_though_another_org_has_named_them() -> None:
    org, other = uuid.uuid4(), uuid.uuid4()
    key = f"{keys.org_prefix(org)}edge/20261118/logs/00/tbl_x.parquet"
    segment = SegmentObjects(uuid.uuid4(), (key,), 10, 1, 2)
    ticket = replace(_request(), org_id=org, segments=(segment,)).to_ticket(TOKEN)
    for _ in range(2):
        assert read_request(read_document(ticket)).segments == (segment,)
    with pytest.raises(BadInput, match="it is not of org"):
        read_request({**read_document(ticket), "org": str(other)})


def test_segments_of_a_ticket_are_not_mixed_up() -> None:
    org, segment_id = uuid.uuid4(), uuid.uuid4()
    key = f"{keys.org_prefix(org)}edge/20261118/logs/00/tbl_x.parquet"
    hidden = HiddenRows(uuid.uuid4(), 1, 2, "{}")
    segments = [
        SegmentObjects(segment_id, (key,), 10, 1, 2),
        SegmentObjects(segment_id, (key,), 10, 1, 2, hidden=(hidden,)),
        SegmentObjects(segment_id, (key,), 10, 1, 3),
        SegmentObjects(segment_id, (key, key), 10, 1, 2),
    ]
    for segment in (*segments, *segments):
        ticket = replace(_request(), org_id=org, segments=(segment,)).to_ticket(TOKEN)
        assert read_request(read_document(ticket)).segments == (segment,)


def _stored(org: uuid.UUID, hidden: tuple[HiddenRows, ...] = ()) -> Segment:
    return Segment(
        segment_id=uuid.UUID(int=7), org_id=org, collector="edge", signal="logs", tier_s=0,
        time_range=TimeRange(1, 2), row_count=1, size_bytes=10, pruning=Pruning({}), hidden=hidden,
    )  # fmt: skip


def test_a_segment_that_is_named_again_keeps_its_org_and_shows_what_is_hidden_since() -> None:
    org, other = uuid.uuid4(), uuid.uuid4()
    hidden = HiddenRows(uuid.uuid4(), 1, 2, "{}")
    for stored in (_stored(org), _stored(org, (hidden,)), _stored(org), _stored(other)):
        segment = SegmentObjects.of(stored)
        assert segment.hidden == stored.hidden
        assert all(key.startswith(keys.org_prefix(stored.org_id)) for key in segment.keys)
        ticket = replace(_request(), org_id=stored.org_id, segments=(segment,)).to_ticket(TOKEN)
        assert read_request(read_document(ticket)).segments == (segment,)
    changed = replace(SegmentObjects.of(_stored(org)), size_bytes=11)
    ticket = replace(_request(), org_id=org, segments=(changed,)).to_ticket(TOKEN)
    assert read_request(read_document(ticket)).segments[0].size_bytes == 11


def test_a_matcher_that_is_no_utf_8_goes_with_segments_that_were_named_before() -> None:
    org = uuid.uuid4()
    segment = SegmentObjects.of(_stored(org))
    leaf = Leaf.of_samples((Matcher("job", MatchKind.EQUAL, "\udcff"),), 0, 1)
    request = ScanRequest(
        org_id=org, query_id=uuid.uuid4(), segments=(segment,), deadline_s=time.monotonic() + 9, max_bytes=1,
        kind=Kind.SAMPLES, leaf=leaf,
    )  # fmt: skip
    read = read_request(read_document(request.to_ticket(TOKEN)))
    assert isinstance(read, ScanRequest)
    assert (read.segments, read.leaf) == ((segment,), leaf)


def test_a_request_holds_no_more_than_its_worker_allows() -> None:
    document = read_document(replace(_request(), max_bytes=100).to_ticket(TOKEN))
    assert [read_request(document, most).max_bytes for most in (7, 100, 1_000)] == [7, 100, 100]


def test_a_small_answer_that_breaks_off_comes_whole_from_another_worker(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = WorkerServer("grpc://127.0.0.1:0", _Workers(), TOKEN, 4, 1 << 30)  # type: ignore[arg-type]
    other.listen_in(tmp_path)
    addresses = [asked.address, f"127.0.0.1:{other.port}"]
    workers = FlightWorkers(lambda: addresses, TOKEN, data_dir=tmp_path)
    calls: list[int] = []

    def made(check: Check) -> Iterator[pa.RecordBatch]:
        calls.append(1)
        yield _numbers(3)
        if len(calls) == 1:
            raise Unavailable("the disk is gone")
        yield _numbers(2)

    asked.makes(made)
    try:
        *batches, answer = workers.stream(replace(_request(), small=True), lambda: None)
        assert [len(batch) for batch in batches] == [3, 2]  # type: ignore[arg-type]
        assert isinstance(answer, EvaluateAnswer)
        assert len(calls) == 2
    finally:
        workers.close()
        other.shutdown()
