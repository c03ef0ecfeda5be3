"""The object store that all other packages use: a bucket with retries and a circuit breaker."""

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
from lakerunner.store.errors import DiskFull, Refused, StoreUnavailable
from lakerunner.store.keys import check_key, check_prefix
from lakerunner.store.requests import count_request

T = TypeVar("T")

_BACKOFF = Backoff(base_s=0.1, cap_s=5.0)
#: Bytes per request of a stream: large enough to amortise the request, small enough to be fetched again.
CHUNK_BYTES = 8 << 20
#: Keys per call of the bucket's delete.
_DELETE_KEYS = 1_000
#: Other objects that are tried before a refusal is taken to concern the whole store.
_OTHERS = 3


class _Paused(LakeError):
    """Ends the attempts of a call once the circuit is open. Callers see it as Unavailable."""


class ObjectStore:
    """One bucket. Safe to share between threads. Pickling keeps only the config; unpickling opens the store again.

    Bytes are returned as stored: the Content-Encoding of an object is ignored.
    """

    def __init__(self, bucket: Bucket, config: StoreConfig) -> None:
        self._bucket = bucket
        self._circuit = Circuit(config.circuit_failures, config.circuit_pause_s)
        #: The last failure of the store as a whole, shown while calls are paused.
        self._trouble = ""
        self.config = config

    def put(self, key: str, body: Buffer | Iterable[Buffer], *, create_only: bool = True) -> ObjectMeta:
        """Store the bytes, completely or not at all. Create-only on an existing key raises Conflict.

        An iterable is joined in memory first, because a retry could not read it again. Use `put_file` for large
        objects.
        """
        whole: Buffer
        if isinstance(body, memoryview):
            # Bucket clients take only unsigned bytes, but Arrow's buffers are of signed bytes.
            whole = body.cast("B")
        else:
            whole = body if isinstance(body, (bytes, bytearray)) else b"".join(body)
        check_key(key)
        return self._put(
            key,
            lambda: self._bucket.put(key, whole, create_only=create_only),
            lambda: _equal(memoryview(whole).cast("B"), self.stream(key)),
            len(whole),
        )

    def put_file(self, key: str, path: Path, *, create_only: bool = True) -> ObjectMeta:
        """Like `put`, from a file, without holding it in memory. Create-only is limited to 4 GiB in the cloud."""
        check_key(key)
        return self._put(
            key,
            lambda: self._bucket.put_file(key, path, create_only=create_only),
            lambda: _equal_file(path, self.stream(key)),
            # A file that is not there is reported by the bucket.
            path.stat().st_size if path.exists() else 0,
        )

    def get(self, key: str, *, etag: str | None = None) -> bytes:
        """Return the whole object. With an etag, a later version of the object raises Conflict."""
        check_key(key)
        return self._call("get", lambda: self._bucket.get(key, etag=etag), key=key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return bytes from `start`, fewer than `length` at the end. A start after the end raises BadInput."""
        check_key(key)
        if start < 0 or length <= 0:
            raise BadInput(f"cannot get a range of {key!r}: start {start} or length {length} is invalid")
        return self._call("get_range", lambda: self._bucket.get_range(key, start, length), key=key)

    def stream(self, key: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the object in chunks. Raises Conflict if the object changes meanwhile.

        Each chunk is a separate request with its own timeout and attempts, so a short failure does not abort a large
        object.
        """
        if chunk_bytes <= 0:
            raise BadInput(f"cannot stream {key!r}: chunks of {chunk_bytes} bytes are impossible")
        meta = self.head(key)
        for start in range(0, meta.size_bytes, chunk_bytes):
            length = min(chunk_bytes, meta.size_bytes - start)
            yield self._call("get_range", self._chunk(meta, start, length), key=key)

    def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return self._call("head", lambda: self._bucket.head(key), key=key)

    def content_version(self, key: str, etag: str | None) -> str | None:
        """Return the version of the object by its content, on stores whose etags do not outlive a copy; else None."""
        check_key(key)
        return self._call("hash", lambda: self._bucket.content_version(key, etag), key=key)

    def list(self, prefix: str = "", *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectMeta]:
        """Yield objects under a prefix in key order. The prefix consists of whole path parts.

        To continue a listing, pass the last key as `start_after`. A page that fails is requested again from there.
        Keys are ordered by code point (and so by UTF-8 bytes); Azure's order differs for characters above U+FFFF.
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

        while left != 0 and (page := self._call("list", next_page, about=(prefix,))) is not None:
            for meta in page:
                # A listing may start before the offset: Azure's emulator does this, and compatible services may.
                if begun_after and order(meta.key) <= order(begun_after):
                    continue
                if left == 0:
                    return
                last = meta.key
                left -= 1
                yield meta
        if last == start_after and left != 0:
            # An empty page is one too.
            count_request("list", (prefix,), 0)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. A missing key is not an error, so an interrupted deletion can be repeated."""
        batch: list[str] = []
        for key in keys:
            batch.append(check_key(key))
            if len(batch) == _DELETE_KEYS:
                self._delete(batch)
                batch = []
        if batch:
            self._delete(batch)

    def ping(self) -> None:
        """Make one cheap request, without retries; raise when it fails or while calls are paused."""
        self._call("ping", lambda: next(iter(self._bucket.pages("", "")), None), attempts=1)

    @property
    def is_paused(self) -> bool:
        """Whether calls fail at once because the store is down."""
        return self._circuit.is_open

    def __reduce__(self) -> tuple[Any, ...]:
        # Imported here because `open` imports this module.
        from lakerunner.store.open import open_store

        return open_store, (self.config,)

    def _put(
        self, key: str, put: Callable[[], ObjectMeta], is_stored: Callable[[], bool], sent_bytes: int
    ) -> ObjectMeta:
        failures: list[LakeError] = []
        try:
            return self._call("put", put, about=(key,), sent_bytes=sent_bytes, failures=failures)
        except Conflict:
            # An attempt whose answer was lost may have stored the object. Then the existing object is ours.
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
        self._call("delete", lambda: self._bucket.delete(keys), about=keys)

    def _chunk(self, meta: ObjectMeta, start: int, length: int) -> Callable[[], bytes]:
        return lambda: self._bucket.get_range(meta.key, start, length, etag=meta.etag)

    def _call(
        self,
        operation: str,
        request: Callable[[], T],
        *,
        key: str | None = None,
        about: Sequence[str] = (),
        sent_bytes: int = 0,
        attempts: int | None = None,
        failures: MutableSequence[LakeError] | None = None,
    ) -> T:
        """Return the request's result after at most `attempts`. Retried failures are appended to `failures`.

        `key` is given for reads, which may be refused for that object alone; `about` for other requests.
        """
        noted = [] if failures is None else failures
        try:
            return retrying(
                lambda: self._counted(operation, request, key, about, sent_bytes),
                attempts=attempts or self.config.max_attempts,
                backoff=_BACKOFF,
                on_retry=lambda error, _: noted.append(error),
            )
        except _Paused as paused:
            # The failure that opened the circuit says more than the pause.
            raise (
                noted[-1] if noted else StoreUnavailable(paused.message, hint=paused.hint, where=paused.where)
            ) from None

    def _counted(
        self, operation: str, request: Callable[[], T], key: str | None, about: Sequence[str], sent_bytes: int
    ) -> T:
        """One attempt, counted for whoever pays for it: also if it fails, unless it was not sent at all."""
        moved_bytes, is_sent = sent_bytes, operation != "hash"
        try:
            result = self._attempt(operation, request, key)
            if isinstance(result, bytes):
                moved_bytes = len(result)
            # The end of a listing is known from its last page.
            is_sent = is_sent and not (operation == "list" and result is None)
            return result
        except _Paused:
            is_sent = False
            raise
        finally:
            if is_sent:
                count_request(operation, about if key is None else (key,), moved_bytes)

    def _attempt(self, operation: str, request: Callable[[], T], key: str | None) -> T:
        if not self._circuit.admit():
            STORE_ERRORS.labels(operation, "paused").inc()
            raise _Paused(
                f"cannot {operation}: the store fails and calls to it are paused: {self._trouble}",
                hint=f"it is tried again every {self.config.circuit_pause_s:g} s",
                where=self.config.url,
            )
        started = time.perf_counter()
        try:
            result = self._asked(request, key)
        except LakeError as error:
            STORE_ERRORS.labels(operation, error.code).inc()
            if isinstance(error, DiskFull):
                self._circuit.abandoned()
            elif isinstance(error, StoreUnavailable):
                self._trouble = error.message
                self._circuit.trip()
            elif isinstance(error, Unavailable):
                self._trouble = error.message
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

    def _asked(self, request: Callable[[], T], key: str | None) -> T:
        """Send the request. A refusal becomes StoreUnavailable, unless the store refuses only this object."""
        try:
            return request()
        except Refused as error:
            if key is None or not self._serves_others(key):
                raise StoreUnavailable(error.message, hint=error.hint, where=self.config.url) from None
        # Asked again, because the refusal of all may just have ended. A second one is the object's own.
        return request()

    def _serves_others(self, key: str) -> bool:
        """Whether another object can be read, so that the store refuses this one alone.

        A listing is not enough: the right to list and the right to read, or to decrypt, are different rights. The
        folder of the key is tried first, because credentials are often limited to a prefix.
        """
        for prefix in dict.fromkeys((key[: key.rfind("/") + 1], "")):
            try:
                page = next(iter(self._bucket.pages(prefix, "")), ())
            except LakeError:
                continue
            others = [meta for meta in page if meta.key != key and meta.size_bytes]
            for meta in sorted(others, key=lambda each: -each.modified_ns)[:_OTHERS]:
                try:
                    self._bucket.get_range(meta.key, 0, 1)
                except LakeError:
                    continue
                return True
        return False


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
