"""A failing store: lost answers, timeouts, refusals, an outage and its end."""

from __future__ import annotations

import gzip
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput, Conflict, Denied, Unavailable
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.open import open_store
from tests.components.moto import Moto, running_moto
from tests.components.process import free_port
from tests.store.faulty_proxy import Fault, FaultyProxy, faulty_proxy


@pytest.fixture(scope="module")
def proxy(moto: Moto) -> Iterator[FaultyProxy]:
    moto.create_bucket("faulty")
    with faulty_proxy(moto.host, moto.port) as running:
        yield running


@pytest.fixture
def config(proxy: FaultyProxy, s3_config: Callable[..., StoreConfig]) -> StoreConfig:
    proxy.plan()
    proxy.refusals = {}
    return s3_config(proxy.endpoint, "faulty")


def test_a_busy_store_is_asked_again(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(config)
    proxy.plan(Fault.BUSY, Fault.DROP, Fault.BUSY)
    store.put("busy", b"1")
    assert len(proxy.calls) == 4
    proxy.plan(Fault.DROP)
    assert store.get("busy") == b"1"
    assert len(proxy.calls) == 2


def test_attempts_are_counted_once_and_not_multiplied_below(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(replace(config, max_attempts=3))
    proxy.plan(*[Fault.BUSY] * 20)
    with pytest.raises(Unavailable, match="503") as raised:
        store.get("x")
    assert len(proxy.calls) == 3
    assert "\n" not in str(raised.value)


REFUSALS = {
    "denied": (403, "AccessDenied"),
    "skewed clock": (403, "RequestTimeTooSkewed"),
    "wrong region": (301, "PermanentRedirect"),
    "expired token": (400, "ExpiredToken"),
    "malformed": (400, "AuthorizationHeaderMalformed"),
    "no credentials": (401, "Unauthorized"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_store_that_refuses_everybody_pauses_and_resumes(
    proxy: FaultyProxy, config: StoreConfig, refusal: tuple[int, str]
) -> None:
    store = open_store(replace(config, circuit_pause_s=0.0, max_attempts=2))
    paused = open_store(config)
    store.put("refused/a", b"1", create_only=False)
    proxy.refusals = {"": refusal}
    calls: list[Callable[[], object]] = [
        lambda: store.get("refused/a"),
        lambda: store.head("refused/a"),
        lambda: store.get_range("refused/a", 0, 1),
        lambda: store.put("refused/b", b"1"),
        lambda: list(store.list()),
        lambda: store.delete(["refused/a"]),
        store.ping,
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable) as raised:
            call()
        assert raised.value.where == config.url and raised.value.hint
    with pytest.raises(StoreUnavailable):
        paused.ping()
    assert paused.is_paused
    proxy.plan()
    with pytest.raises(StoreUnavailable, match=f"paused: cannot list.*({refusal[1]}|another region)"):
        paused.get("refused/a")
    assert proxy.calls == [], "while it is paused, nothing is sent"
    proxy.refusals = {}
    assert store.get("refused/a") == b"1"
    assert not store.is_paused


def test_a_key_that_is_refused_alone_does_not_pause_the_store(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(config)
    for key in ("alone/a", "alone/b"):
        store.put(key, b"1", create_only=False)
    proxy.refusals = {"/alone/a": (403, "AccessDenied")}
    for call in (store.get, store.head):
        with pytest.raises(Denied, match=r"403|AccessDenied"):
            call("alone/a")
    assert not store.is_paused
    assert store.get("alone/b") == b"1"
    # The right to list is not the right to read.
    proxy.refusals = {"GET /faulty/": (403, "AccessDenied")}
    with pytest.raises(StoreUnavailable):
        store.get("alone/b")


def test_an_archived_object_is_its_own_fault(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(config)
    proxy.refusals = {"": (403, "InvalidObjectState")}
    with pytest.raises(BadInput, match="archived storage class"):
        store.get("archived")
    assert not store.is_paused


def test_a_put_whose_answer_was_lost_is_not_a_conflict_with_itself(
    proxy: FaultyProxy, config: StoreConfig, tmp_path: Path
) -> None:
    store = open_store(config)
    proxy.plan(Fault.LOSE_ANSWER)
    made = store.put("lost", b"mine")
    assert (made.key, made.size_bytes) == ("lost", 4)
    (tmp_path / "file").write_bytes(b"mine too")
    proxy.plan(Fault.LOSE_ANSWER)
    assert store.put_file("lost file", tmp_path / "file").size_bytes == 8


def test_a_put_that_lost_to_another_is_a_conflict_even_after_a_failure(
    proxy: FaultyProxy, config: StoreConfig, tmp_path: Path
) -> None:
    store = open_store(config)
    store.put("taken", b"theirs")
    (tmp_path / "file").write_bytes(b"mine..")
    proxy.plan(Fault.BUSY)
    with pytest.raises(Conflict):
        store.put("taken", b"mine..")
    proxy.plan(Fault.BUSY)
    with pytest.raises(Conflict):
        store.put_file("taken", tmp_path / "file")
    assert store.get("taken") == b"theirs"


def test_a_silent_store_is_given_up_in_time(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(replace(config, timeout_s=0.3))
    store.put("silent", b"1")
    proxy.plan(Fault.HANG)
    started = time.monotonic()
    assert store.get("silent") == b"1"
    assert 0.3 <= time.monotonic() - started < 1.5
    single = open_store(replace(config, timeout_s=0.3, max_attempts=1))
    proxy.plan(Fault.HANG)
    with pytest.raises(Unavailable, match=r"(?i)timed ?out"):
        single.get("silent")


def test_a_stream_outlives_failures_between_its_chunks(proxy: FaultyProxy, config: StoreConfig) -> None:
    store = open_store(config)
    store.put("stream", bytes(range(100)))
    chunks = store.stream("stream", 30)
    first = next(chunks)
    proxy.plan(Fault.DROP, Fault.PASS, Fault.BUSY)
    assert first + b"".join(chunks) == bytes(range(100))


def test_an_outage_pauses_calls_and_its_end_resumes_them(tmp_path: Path, s3_config: Callable[..., StoreConfig]) -> None:
    port = free_port()
    store = open_store(replace(s3_config(f"http://127.0.0.1:{port}"), circuit_failures=3, circuit_pause_s=0.4))
    with running_moto(tmp_path, port) as server:
        server.create_bucket("lake")
        store.put("before", b"1")
    with pytest.raises(Unavailable, match=r"(?i)connection refused"):
        store.put("during", b"1")
    assert store.is_paused
    started = time.perf_counter()
    with pytest.raises(Unavailable, match="calls to it are paused"):
        store.get("before")
    assert time.perf_counter() - started < 0.05
    time.sleep(0.5)  # longer than a pause: the probe fails and begins another one
    with pytest.raises(Unavailable, match=r"(?i)connection refused"):
        store.ping()
    assert store.is_paused
    with running_moto(tmp_path, port) as server:
        server.create_bucket("lake")
        time.sleep(0.5)
        store.ping()
        assert not store.is_paused
        store.put("after", b"1")


def test_an_encoded_object_is_read_as_it_is_stored(moto: Moto, s3_config: Callable[..., StoreConfig]) -> None:
    moto.create_bucket("encoded")
    body = gzip.compress(b"line\n" * 1_000)
    url = f"{moto.endpoint}/encoded/raw.json.gz"
    # The type matters to moto: it would wait for a form. Public, so that the check below may read without signing.
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json", "x-amz-acl": "public-read"}
    with urllib.request.urlopen(urllib.request.Request(url, data=body, method="PUT", headers=headers), timeout=10):
        pass
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] == "gzip", "the object must be one that a browser would unpack"
    store = open_store(s3_config(moto.endpoint, "encoded"))
    assert store.head("raw.json.gz").size_bytes == len(body)
    assert store.get("raw.json.gz") == body
    assert b"".join(store.stream("raw.json.gz", 10)) == body
    assert store.get_range("raw.json.gz", 3, 4) == body[3:7]
