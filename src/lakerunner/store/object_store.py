"""The object store as every other room sees it: exact, retried by class, and paused while it is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lakerunner.model.errors import BadInput, Conflict, LakeError, Missing, Unavailable
from lakerunner.runtime.metrics import STORE_ERRORS, STORE_SECONDS
from lakerunner.runtime.retry import Backoff, retrying
from lakerunner.store.bucket import Bucket, Buffer, ObjectMeta
from lakerunner.store.circuit import Circuit
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import DiskFull
from lakerunner.store.keys import check_key, check_prefix

T = TypeVar("T")

_BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
#: One request of a stream: large enough that the request is a small part, small enough to be fetched again.
CHUNK_BYTES = 8 << 20
#: Keys handed to the bucket at once when deleting.
_DELETE_KEYS = 1_000


class _Paused(LakeError):
    """Ends the attempts of a call once the circuit is open. Callers see the Unavailable that is made of it."""


class ObjectStore:
    """One bucket. Safe to share between threads; pickling carries the config, and the other side opens its own.

    Bytes are as stored: a Content-Encoding of an object is never acted upon.
    """

    def __init__(self, bucket: Bucket, config: StoreConfig) -> None:
        self._bucket = bucket
        self._circuit = Circuit(config.circuit_failures, config.circuit_pause_s)
        self.config = config

    def put(self, key: str, body: Buffer | Iterable[Buffer], *, create_only: bool = True) -> ObjectMeta:
        """Store the bytes, whole or not at all; create-only on an existing key is a Conflict.

        An iterable is gathered in memory first, since it could not be sent a second time: large objects are
        written to a file and put with `put_file`.
        """
        whole: Buffer
        if isinstance(body, memoryview):
            # Of whatever items, as Arrow's are of signed ones: clients of buckets take unsigned bytes only.
            whole = body.cast("B")
        else:
            whole = body if isinstance(body, (bytes, bytearray)) else b"".join(body)
        check_key(key)
        return self._put(
            key,
            lambda: self._bucket.put(key, whole, create_only=create_only),
            lambda: _equal(memoryview(whole).cast("B"), self.stream(key)),
        )

    def put_file(self, key: str, path: Path, *, create_only: bool = True) -> ObjectMeta:
        """As `put`, from a file, without holding it in memory. Create-only ends at 4 GiB at a provider."""
        check_key(key)
        return self._put(
            key,
            lambda: self._bucket.put_file(key, path, create_only=create_only),
            lambda: _equal_file(path, self.stream(key)),
        )

    def get(self, key: str) -> bytes:
        check_key(key)
        return self._call("get", lambda: self._bucket.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes from `start`, fewer than `length` at the end. A range that begins after the end is BadInput."""
        check_key(key)
        if start < 0 or length <= 0:
            raise BadInput(f"cannot get a range of {key!r}: it begins at {start} and is {length} bytes long")
        return self._call("get_range", lambda: self._bucket.get_range(key, start, length))

    def stream(self, key: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The object in chunks of that size, the last one smaller; all of one version, else Conflict.

        Each chunk is a request of its own, with its own timeout and attempts: a large object outlives a hiccup.
        """
        if chunk_bytes <= 0:
            raise BadInput(f"cannot stream {key!r} in chunks of {chunk_bytes} bytes")
        meta = self.head(key)
        for start in range(0, meta.size_bytes, chunk_bytes):
            length = min(chunk_bytes, meta.size_bytes - start)
            yield self._call("get_range", self._chunk(meta, start, length))

    def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return self._call("head", lambda: self._bucket.head(key))

    def list(self, prefix: str = "", *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectMeta]:
        """Objects under a prefix of whole parts, in the order of their keys, a page at a time.

        To go on later, pass the last key as `start_after`. A page that fails is asked for again from there.
        The order is that of code points (and so of UTF-8 bytes); Azure's differs for characters above U+FFFF.
        """
        prefix = check_prefix(prefix)
        left = -1 if limit is None else limit
        order = self._bucket.order
        last = begun_after = start_after
        pages = self._bucket.pages(prefix, last)
        broken = False

        def next_page() -> Sequence[ObjectMeta] | None:
            nonlocal pages, begun_after, broken
            if broken:
                pages, begun_after, broken = self._bucket.pages(prefix, last), last, False
            try:
                return next(pages, None)
            except LakeError:
                broken = True
                raise

        while left != 0 and (page := self._call("list", next_page)) is not None:
            for meta in page:
                # A bucket may begin before the offset: Azure's emulator does, and so may a compatible service.
                if begun_after and order(meta.key) <= order(begun_after):
                    continue
                if left == 0:
                    return
                last = meta.key
                left -= 1
                yield meta

    def delete(self, keys: Iterable[str]) -> None:
        """Delete them. One that is not there is no error, so a deletion cut short can be done again."""
        batch: list[str] = []
        for key in keys:
            batch.append(check_key(key))
            if len(batch) == _DELETE_KEYS:
                self._delete(batch)
                batch = []
        if batch:
            self._delete(batch)

    def ping(self) -> None:
        """One cheap request and one attempt; raises when the bucket does not answer as it should."""
        self._call("ping", lambda: next(iter(self._bucket.pages("", "")), None), attempts=1)

    @property
    def is_paused(self) -> bool:
        """Whether calls fail at once because the store was found to be down."""
        return self._circuit.is_open

    def __reduce__(self) -> tuple[Any, ...]:
        # Here, because opening builds on this class.
        from lakerunner.store.open import open_store

        return open_store, (self.config,)

    def _put(self, key: str, put: Callable[[], ObjectMeta], is_stored: Callable[[], bool]) -> ObjectMeta:
        failures: list[LakeError] = []
        try:
            return self._call("put", put, failures=failures)
        except Conflict:
            # An attempt whose answer was lost may have stored the object: then the one in the way is our own.
            if not failures:
                raise
            try:
                ours = is_stored()
            except Missing:
                ours = False
            if not ours:
                raise
            return self.head(key)

    def _delete(self, keys: Sequence[str]) -> None:
        self._call("delete", lambda: self._bucket.delete(keys))

    def _chunk(self, meta: ObjectMeta, start: int, length: int) -> Callable[[], bytes]:
        return lambda: self._bucket.get_range(meta.key, start, length, etag=meta.etag)

    def _call(
        self,
        operation: str,
        request: Callable[[], T],
        *,
        attempts: int | None = None,
        failures: MutableSequence[LakeError] | None = None,
    ) -> T:
        """The request's result, within the configured attempts. Failures that were retried are noted."""
        noted = [] if failures is None else failures
        try:
            return retrying(
                lambda: self._attempt(operation, request),
                attempts=attempts or self.config.max_attempts,
                backoff=_BACKOFF,
                on_retry=lambda error, _: noted.append(error),
            )
        except _Paused as paused:
            # The failure that opened the circuit says more than the circuit does.
            raise noted[-1] if noted else Unavailable(paused.message, hint=paused.hint) from None

    def _attempt(self, operation: str, request: Callable[[], T]) -> T:
        if not self._circuit.admit():
            STORE_ERRORS.labels(operation, "paused").inc()
            raise _Paused(
                f"cannot {operation}: the store at {self.config.url} does not answer and calls to it are paused",
                hint=f"it is tried again every {self.config.circuit_pause_s:g} s",
            )
        started = time.perf_counter()
        try:
            result = request()
        except LakeError as error:
            STORE_ERRORS.labels(operation, error.code).inc()
            if isinstance(error, DiskFull):
                self._circuit.abandoned()
            elif isinstance(error, Unavailable):
                self._circuit.failed()
            else:
                self._circuit.succeeded()
            raise
        except BaseException:
            self._circuit.abandoned()
            raise
        finally:
            STORE_SECONDS.labels(operation).observe(time.perf_counter() - started)
        self._circuit.succeeded()
        return result


def _equal(body: memoryview, chunks: Iterator[bytes]) -> bool:
    position = 0
    for chunk in chunks:
        if body[position : position + len(chunk)] != chunk:
            return False
        position += len(chunk)
    return position == len(body)


def _equal_file(path: Path, chunks: Iterator[bytes]) -> bool:
    with path.open("rb") as file:
        return all(file.read(len(chunk)) == chunk for chunk in chunks) and not file.read(1)
