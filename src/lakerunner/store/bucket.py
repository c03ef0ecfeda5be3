"""The interface of a bucket: one request per call, without retries, raising only LakeErrors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Metadata of an object, without its content."""

    key: str
    size_bytes: int
    etag: str | None
    version: str | None
    modified_ns: int


def version_of(meta: ObjectMeta) -> str:
    """What tells two uploads under one key apart, and the same whether the object was listed or asked for.

    The etag and not the version id: listings do not tell version ids. Azure quotes etags in headers only.
    """
    etag = (meta.etag or "").removeprefix("W/").strip('"')
    return etag or meta.version or f"{meta.modified_ns}-{meta.size_bytes}"


class Bucket(Protocol):
    """A local folder, or a bucket at a cloud provider. Every method is safe to call from many threads.

    `ObjectStore` adds retries, the circuit breaker and metrics, the same for all buckets.
    """

    def put(self, key: str, body: Buffer, *, create_only: bool) -> ObjectMeta: ...

    def put_file(self, key: str, path: Path, *, create_only: bool) -> ObjectMeta: ...

    def get(self, key: str, *, etag: str | None = None) -> bytes:
        """Return the whole object. Raises Conflict if its etag is not the one given."""
        ...

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Return the bytes, fewer at the end of the object. Raises Conflict if its etag is not the one given."""
        ...

    def head(self, key: str) -> ObjectMeta: ...

    def content_version(self, key: str, etag: str | None) -> str | None:
        """Return a hash of the content if etags here do not outlive a copy, else None. Conflict as for `get`."""
        ...

    def pages(self, prefix: str, start_after: str) -> Iterator[Sequence[ObjectMeta]]:
        """Yield pages of objects in key order. A page may contain keys up to `start_after`; the caller drops them."""
        ...

    def order(self, key: str) -> Any:
        """Return the sort key of listings."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. A missing key is not an error."""
        ...
