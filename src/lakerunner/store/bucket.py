"""What a place of objects must be able to do: one request each, no retry, errors already ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What the store knows of an object without opening it."""

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
    """A folder, or a container at a provider. Every method is safe to call from many threads.

    Retry, circuit and metrics are above this, in `ObjectStore`, and the same for all.
    """

    def put(self, key: str, body: Buffer, *, create_only: bool) -> ObjectMeta: ...

    def put_file(self, key: str, path: Path, *, create_only: bool) -> ObjectMeta: ...

    def get(self, key: str) -> bytes: ...

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Those bytes, fewer at the end. With an etag: of that version of the object, else Conflict."""
        ...

    def head(self, key: str) -> ObjectMeta: ...

    def pages(self, prefix: str, start_after: str) -> Iterator[Sequence[ObjectMeta]]:
        """Pages of objects in order of key. One may hold keys up to `start_after` still: the caller drops those."""
        ...

    def order(self, key: str) -> Any:
        """What its listings are sorted by."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete them; one that is not there is no error."""
        ...
