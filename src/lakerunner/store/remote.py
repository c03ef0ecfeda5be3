"""A bucket at a cloud provider (S3, GCS, Azure), through obstore: one request per call."""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import obstore

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit, Missing
from lakerunner.store.bucket import Buffer, ObjectMeta
from lakerunner.store.errors import folder_errors, of_obstore, remote_errors

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore import ObjectMeta as FoundMeta
    from obstore.store import AzureStore, GCSStore, S3Store

    Client: TypeAlias = S3Store | GCSStore | AzureStore

#: A larger request gets more time than the configured timeout: see `_client_for`.
_SMALL_BYTES = 16 << 20
#: The slowest transfer that still counts as progress.
_MIN_BYTES_PER_S = 4 << 20
#: Above this size an overwriting put is a multipart upload. A create-only put never is (see `put_file`).
_MULTIPART_BYTES = 64 << 20
#: The largest single put is 5 GiB on S3 and 5,000 MiB on Azure. Segments are at most a tenth of that.
MAX_CREATE_BYTES = 4 << 30
_PAGE = 1_000
#: Azure's limit of keys per bulk delete; S3 takes 1,000.
DELETE_KEYS = 256


class _Runtime:
    """Detects a fork after obstore has started its threads.

    The first request of a process starts them. They do not exist in a process forked later, in which every request
    would hang.
    """

    begun = False
    lost = False

    @classmethod
    def use(cls) -> None:
        if cls.lost:
            raise Bug(
                "cannot use a bucket in this process: it was forked from one that had used a bucket before",
                hint="use the spawn start method, or fork before the first request",
            )
        cls.begun = True

    @classmethod
    def forked(cls) -> None:
        cls.lost = cls.begun


os.register_at_fork(after_in_child=_Runtime.forked)


class RemoteBucket:
    """`build` makes a client with the given request timeout in seconds.

    A client's timeout covers the whole request with its body. A timeout that suits a HEAD would cut off a large
    upload, and one that suits the upload would let a dead HEAD hang. So there is one client per size class, made when
    first needed.
    """

    def __init__(self, build: Callable[[float], Client], timeout_s: float, *, azure: bool = False) -> None:
        self._build = lru_cache(maxsize=16)(build)
        self._timeout_s = timeout_s
        self._azure = azure
        self._client = self._build(timeout_s)

    def put(self, key: str, body: Buffer, *, create_only: bool) -> ObjectMeta:
        self._check(key)
        size_bytes = memoryview(body).nbytes
        with remote_errors(f"put {key!r}"):
            result = obstore.put(
                self._client_for(size_bytes),
                key,
                body,
                mode="create" if create_only else "overwrite",
                use_multipart=False,
            )
        return _made(key, size_bytes, result)

    def put_file(self, key: str, path: Path, *, create_only: bool) -> ObjectMeta:
        """Upload a file: in parts when it may overwrite, else as one put of the mapped file.

        obstore has no create-only multipart upload: S3 checks the condition on completion, but obstore does not send
        it.
        """
        with folder_errors(f"read {str(path)!r}"), path.open("rb") as file:
            size_bytes = path.stat().st_size
            if not create_only and size_bytes > _MULTIPART_BYTES:
                return self._put_parts(key, path, size_bytes)
            if size_bytes > MAX_CREATE_BYTES:
                raise LimitHit(
                    f"cannot put {key!r}: {size_bytes} bytes are more than the {MAX_CREATE_BYTES} of a create-only put",
                    hint="write smaller objects",
                )
            if size_bytes == 0:
                return self.put(key, b"", create_only=create_only)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as body:
                return self.put(key, body, create_only=create_only)

    def _put_parts(self, key: str, path: Path, size_bytes: int) -> ObjectMeta:
        self._check(key)
        with remote_errors(f"put {key!r}"):
            result = obstore.put(
                self._client, key, path, use_multipart=True, chunk_size=_SMALL_BYTES, max_concurrency=4
            )
        return _made(key, size_bytes, result)

    def get(self, key: str, *, etag: str | None = None) -> bytes:
        self._check(key)
        with remote_errors(f"get {key!r}"):
            result = obstore.get(self._client, key, options=_if_match(etag))
            meta = result.meta
            if meta["size"] <= _SMALL_BYTES:
                return bytes(result.bytes())
            # The answer is dropped unread: its body needs the timeout of a large request.
            options = _if_match(etag or meta["e_tag"])
            return bytes(obstore.get(self._client_for(meta["size"]), key, options=options).bytes())

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        self._check(key)
        options: GetOptions = {**_if_match(etag), "range": (start, start + length)}
        with remote_errors(f"get a range of {key!r}"):
            return bytes(obstore.get(self._client_for(length), key, options=options).bytes())

    def head(self, key: str) -> ObjectMeta:
        self._check(key)
        with remote_errors(f"head {key!r}"):
            try:
                return _meta(obstore.head(self._client, key))
            except FileNotFoundError:
                # The answer to a HEAD has no body, so a missing bucket looks like a missing object. A GET differs.
                return _meta(obstore.get(self._client, key).meta)

    def content_version(self, key: str, etag: str | None) -> str | None:
        return None

    def pages(self, prefix: str, start_after: str) -> Iterator[Sequence[ObjectMeta]]:
        _Runtime.use()
        with remote_errors(f"list {prefix!r}"):
            for page in obstore.list(
                self._client, prefix or None, offset=start_after or None, chunk_size=_PAGE, return_arrow=False
            ):
                yield [_meta(found) for found in page]

    def order(self, key: str) -> Any:
        # Azure orders by UTF-16 units, which above U+FFFF differs from the code point order of S3 and GCS.
        return key.encode("utf-16-be") if self._azure else key

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._check(key)
        for first in range(0, len(keys), DELETE_KEYS):
            batch = keys[first : first + DELETE_KEYS]
            if isinstance(self._try_delete(batch), Missing):
                # GCS and Azure treat a missing key as an error, and may have stopped there.
                for key in batch:
                    self._try_delete([key])

    def _try_delete(self, keys: Sequence[str]) -> LakeError | None:
        try:
            obstore.delete(self._client, keys)
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            found = of_obstore(error, f"delete {keys[0]!r}" if len(keys) == 1 else f"delete {len(keys)} objects")
            if not isinstance(found, Missing):
                raise found from None
            return found
        return None

    def _client_for(self, size_bytes: int) -> Client:
        if size_bytes <= _SMALL_BYTES:
            return self._client
        # Rounded to powers of two, because each client has its own connections.
        return self._build(self._timeout_s + 2 ** math.ceil(math.log2(size_bytes / _MIN_BYTES_PER_S)))

    def _check(self, key: str) -> None:
        _Runtime.use()
        if self._azure and "\\" in key:
            raise BadInput(f"cannot use the key {key!r}: Azure treats a backslash as a slash")


def _if_match(etag: str | None) -> GetOptions:
    # A weak etag never matches by HTTP's rules, so it is compared as if it were strong.
    return {} if etag is None else {"if_match": etag.removeprefix("W/")}


def _meta(found: FoundMeta) -> ObjectMeta:
    modified = found["last_modified"]
    modified_ns = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1_000
    return ObjectMeta(found["path"], found["size"], found["e_tag"], found["version"], modified_ns)


def _made(key: str, size_bytes: int, result: Any) -> ObjectMeta:
    # The answer to a put has no time. Our clock is close enough, and a HEAD would double the requests.
    return ObjectMeta(key, size_bytes, result["e_tag"], result["version"], time.time_ns())
