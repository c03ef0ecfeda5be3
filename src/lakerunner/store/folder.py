"""A folder as a bucket: puts are atomic and durable, and nothing outside the folder is touched."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, Any

from lakerunner.model.errors import BadInput, Conflict, LakeError, Missing, Unavailable
from lakerunner.model.raw_object import CONTENT_VERSION, content_hash
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.store.bucket import Buffer, ObjectMeta
from lakerunner.store.errors import folder_errors
from lakerunner.store.keys import check_key

#: Objects are written here first. It is inside the bucket because a rename cannot cross file systems.
STAGING = ".lakerunner-staging"
#: Files that a killed process left in staging are removed when the folder is opened after this time.
_STAGING_KEEP_S = 86_400.0
_PAGE = 1_000


class FolderBucket:
    """Keys are paths below the root. Symbolic links are never followed, so keys cannot leave the root."""

    def __init__(self, root: Path, *, create: bool = True) -> None:
        if not create and not root.exists():
            raise Unavailable(f"cannot find the folder {root}", hint="mount its disk, or create the folder")
        try:
            with folder_errors(f"use the folder {root} as a bucket"):
                # Telemetry is private. A folder that exists keeps the permissions that its owner gave it.
                root.mkdir(0o700, parents=True, exist_ok=True)
                self._root = root.resolve()
                self._staging = self._root / STAGING
                self._staging.mkdir(0o700, exist_ok=True)
                self._sweep_staging()
        except (Conflict, Missing):
            raise BadInput(
                f"cannot use {root} as a bucket: it or one of its parents is not a folder",
                hint="correct store.url",
                where="store.url",
            ) from None

    def put(self, key: str, body: Buffer, *, create_only: bool) -> ObjectMeta:
        def fill(file: IO[bytes]) -> None:
            file.write(body)

        return self._put(key, fill, create_only)

    def put_file(self, key: str, path: Path, *, create_only: bool) -> ObjectMeta:
        with folder_errors(f"read {str(path)!r}"), path.open("rb") as source:
            return self._put(key, lambda file: shutil.copyfileobj(source, file, 1 << 20), create_only)

    def get(self, key: str, *, etag: str | None = None) -> bytes:
        with self._opened(key, f"get {key!r}", etag) as file:
            return file.read()

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        act = f"get a range of {key!r}"
        with self._opened(key, act, etag) as file:
            if start >= os.fstat(file.fileno()).st_size:
                raise BadInput(f"cannot {act}: the range begins after the end of the object")
            file.seek(start)
            return file.read(length)

    def content_version(self, key: str, etag: str | None) -> str | None:
        with self._opened(key, f"hash {key!r}", etag) as file:
            return CONTENT_VERSION + hashlib.file_digest(file, content_hash).hexdigest()

    def head(self, key: str) -> ObjectMeta:
        with folder_errors(f"head {key!r}"):
            return _meta(key, self._existing(key).stat())

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with folder_errors(f"delete {key!r}"):
                    self._existing(key).unlink()
            except Missing:
                continue

    def pages(self, prefix: str, start_after: str) -> Iterator[Sequence[ObjectMeta]]:
        with folder_errors(f"list {prefix!r}"):
            self._check_root(f"list {prefix!r}")
            objects = self._walk(self._root / prefix, prefix, start_after)
            while page := list(islice(objects, _PAGE)):
                yield page

    def order(self, key: str) -> Any:
        return key

    def _walk(self, folder: Path, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """Yield objects in key order: depth first, sorting each folder with a slash after the names of subfolders.

        Holds the names of one folder per level, and skips folders that lie entirely before `start_after`.
        """
        if folder.resolve() != folder:
            return
        try:
            with os.scandir(folder) as found:
                entries = {_listed_name(entry): entry for entry in found}
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in sorted(entries):
            key, entry = prefix + name, entries[name]
            if name.endswith("/"):
                passed = key <= start_after and not start_after.startswith(key)
                if not passed and key != STAGING + "/":
                    yield from self._walk(folder / entry.name, key, start_after)
            elif key > start_after and entry.is_file(follow_symlinks=False) and _is_key(key):
                try:
                    yield _meta(key, entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue  # deleted since its folder was read, as may happen on any store

    def _put(self, key: str, fill: Callable[[IO[bytes]], None], create_only: bool) -> ObjectMeta:
        act = f"put {key!r}"
        with folder_errors(act):
            self._check_root(act)
            path = self._path(key)
            if create_only and path.exists():
                raise Conflict(f"cannot {act}: it exists already")
            with tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
                staged = Path(file.name)
                try:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                    self._publish(staged, path, create_only)
                finally:
                    staged.unlink(missing_ok=True)
                return _meta(key, os.fstat(file.fileno()))

    def _publish(self, staged: Path, path: Path, create_only: bool) -> None:
        """Give the finished file its name in one step, and make the name survive a power cut."""
        new = [folder for folder in path.parents if not folder.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way") from None
        if create_only:
            path.hardlink_to(staged)
        else:
            staged.replace(path)
        for folder in (path.parent, *(folder.parent for folder in new)):
            _sync_folder(folder)

    @contextlib.contextmanager
    def _opened(self, key: str, act: str, etag: str | None) -> Iterator[BufferedReader]:
        """Open the file; raise Conflict if it is not the one with that etag, before or after it was read."""

        def check(file: IO[bytes]) -> None:
            if etag is not None and _etag(os.fstat(file.fileno())) != etag:
                raise Conflict(f"cannot {act}: it was changed meanwhile")

        with folder_errors(act), self._existing(key).open("rb") as file:
            check(file)
            yield file
            check(file)

    def _existing(self, key: str) -> Path:
        """Return the file of a key. A folder with that name is not an object, nor is a path below a file."""
        path = self._path(key)
        if not path.is_file():
            self._check_root(f"find {key!r}")
            # is_file() is also False without permission: stat raises in that case.
            with contextlib.suppress(NotADirectoryError):
                path.stat()
            raise Missing(f"cannot find {key!r}: there is no such object")
        return path

    def _path(self, key: str) -> Path:
        if key == STAGING or key.startswith(STAGING + "/"):
            raise BadInput(f"cannot use the key {key!r}: {STAGING}/ is reserved for files being written")
        path = self._root / key
        if path.resolve() != path:
            raise Missing(
                f"cannot use the key {key!r}: its path contains a symbolic link", hint="links are not followed"
            )
        return path

    def _check_root(self, act: str) -> None:
        # A vanished root is an unmounted disk: creating it again would write to the wrong disk.
        if not self._staging.is_dir():
            raise Unavailable(f"cannot {act}: the folder {self._root} is gone", hint="mount it again, or restart")

    def _sweep_staging(self) -> None:
        limit = time.time() - _STAGING_KEEP_S
        for path in self._staging.iterdir():
            # Another process may finish its put at any moment, which takes the file away.
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime < limit:
                    path.unlink()


def _listed_name(entry: os.DirEntry[str]) -> str:
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_key(name: str) -> bool:
    """Return False, and count, when a file name cannot be a key (not UTF-8, a control character)."""
    try:
        check_key(name)
    except LakeError:
        SWALLOWED.labels("store_folder_name").inc()
        return False
    return True


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, _etag(status), None, status.st_mtime_ns)
