"""Watch a folder bucket: files become events once they stay unchanged, at the cost of one scan per second.

A scan checks the modification time of every directory and reads only changed ones, because a new or renamed file
changes it. Overwriting a file in place does not; a full scan every minute finds these files. Writers should write
under a temporary name (starting with `.` or ending in `.tmp`) and rename.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from lakerunner.intake.events import ObjectEvent, ParsedEvent, unreadable
from lakerunner.intake.mapping import KeyMap, is_unfinished
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import BadInput, LakeError, Unavailable
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import IntakeSettings
from lakerunner.store.folder import STAGING
from lakerunner.store.keys import COOKED_PREFIX, check_key

#: Scanning uses at most this share of a core, however many directories there are.
_MAX_LOAD = 0.1
#: A directory changed less than this ago may change again without a new modification time.
_TICK_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Watched:
    """The parts of one folder bucket that hold raw objects."""

    bucket: str
    root: str
    prefixes: tuple[str, ...]


#: (bucket, key).
Name = tuple[str, str]
#: Modification time, size and inode: at least one differs when a file was written again.
Stamp = tuple[int, int, int]


@dataclass(slots=True)
class _Directory:
    changed_ns: int
    subdirectories: list[str] = field(default_factory=list)


def watched_folders(key_map: KeyMap) -> list[Watched]:
    """Return the folders and prefixes to watch under the present profiles."""
    return [
        Watched(bucket, str(Path(unquote(bucket.removeprefix("file://"))).resolve()), tuple(key_map.prefixes(bucket)))
        for bucket in sorted(key_map.buckets)
        if bucket.startswith("file://")
    ]


class FolderSource:
    """Remembers recorded files in memory. After a restart they are reported again, and the ledger knows them."""

    name = "folder"
    wait_s = 0.5

    def __init__(
        self,
        watched: Callable[[], Iterable[Watched]],
        settings: IntakeSettings,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._watched = watched
        self._settings = settings
        self._sleep = sleep
        self._directories: dict[str, _Directory] = {}
        self._known: dict[Name, Stamp] = {}
        #: Seen but still changing: path, stamp, and since when the stamp is the same.
        self._waiting: dict[Name, tuple[str, Stamp, float]] = {}
        #: Complete but not yet handed out.
        self._ready: dict[Name, Stamp] = {}
        #: Handed out but not yet answered.
        self._out: dict[str, tuple[Name, Stamp]] = {}
        #: What the last scan could not read. The other folders go on, and the next scan tries again.
        self.trouble: LakeError | None = None
        self._next_scan_s = 0.0
        self._next_full_s = 0.0
        self._receipts = 0

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        end_s = time.monotonic() + timeout_s
        while not self._ready:
            pause_s = self._next_scan_s - time.monotonic()
            if pause_s > 0:
                if time.monotonic() >= end_s:
                    return []
                self._sleep(min(pause_s, max(end_s - time.monotonic(), 0.0)))
                continue
            self._scan()
        names = [name for name, _ in zip(self._ready, range(max_events), strict=False)]
        return [self._hand_out(name, self._ready.pop(name)) for name in names]

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        for event in events:
            name, stamp = self._out.pop(event.receipt)
            self._known[name] = stamp

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        for event in events:
            name, stamp = self._out.pop(event.receipt)
            self._ready[name] = stamp

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _hand_out(self, name: Name, stamp: Stamp) -> ReceivedEvent:
        self._receipts += 1
        receipt = str(self._receipts)
        self._out[receipt] = (name, stamp)
        return ReceivedEvent(receipt, _event(*name))

    def _scan(self) -> None:
        started = time.monotonic()
        full = started >= self._next_full_s
        if full:
            self._directories.clear()
            self._next_full_s = started + self._settings.folder_full_scan_s
        seen: set[Name] = set()
        self.trouble = None
        for watched in self._watched():
            for name, path, stamp in self._walk(watched):
                seen.add(name)
                if self._known.get(name) != stamp and name not in self._ready:
                    before = self._waiting.get(name)
                    if before is None or before[1] != stamp:
                        self._waiting[name] = (path, stamp, started)
        if full and self.trouble is None:
            self._known = {name: stamp for name, stamp in self._known.items() if name in seen}
        self._settle()
        took_s = time.monotonic() - started
        # Files that are still changing are checked again as soon as they can be complete.
        pause_s = self._settings.folder_settle_s if self._waiting else self._settings.folder_poll_s
        pause_s = max(min(pause_s, self._settings.folder_poll_s), took_s * (1 / _MAX_LOAD - 1), 0.01)
        self._next_scan_s = started + took_s + pause_s

    def _settle(self) -> None:
        """Move files that did not change for long enough to `_ready`."""
        now_s = time.monotonic()
        for name, (path, stamp, since_s) in list(self._waiting.items()):
            try:
                present = _stamp(os.lstat(path))
            except OSError:
                # Deleted, renamed or no longer readable: a later scan finds out.
                del self._waiting[name]
                continue
            if present != stamp:
                self._waiting[name] = (path, present, now_s)
            elif now_s - since_s >= self._settings.folder_settle_s:
                del self._waiting[name]
                self._ready[name] = stamp

    def _walk(self, watched: Watched) -> Iterator[tuple[Name, str, Stamp]]:
        if not os.path.isdir(watched.root):  # noqa: PTH112  (strings: half the cost at a hundred thousand files)
            hint = "mount its disk, or create the folder"
            self.trouble = Unavailable(f"cannot watch {watched.root}: it does not exist", hint=hint)
            return
        # Two prefixes may start in the same directory, which is walked once.
        stack = list(dict.fromkeys(f"{watched.root}/{prefix}".rpartition("/")[0] for prefix in watched.prefixes))
        cooked = f"{watched.root}/{COOKED_PREFIX}".rstrip("/")
        while stack:
            directory = stack.pop()
            if directory == cooked:
                continue
            try:
                changed_ns = os.lstat(directory).st_mtime_ns
                known = self._directories.get(directory)
                if known is not None and known.changed_ns == changed_ns:
                    stack += known.subdirectories
                    continue
                files, subdirectories = _read(directory)
            except (FileNotFoundError, NotADirectoryError):
                self._directories.pop(directory, None)
                continue
            except PermissionError:
                SWALLOWED.labels("intake_folder_right").inc()
                continue
            except OSError as error:
                # A failing disk or mount. The directories beside this one may still be readable.
                SWALLOWED.labels("intake_folder_read").inc()
                self.trouble = Unavailable(f"cannot watch {directory}: {error.strerror or error}")
                continue
            if changed_ns < time.time_ns() - _TICK_NS:
                self._directories[directory] = _Directory(changed_ns, subdirectories)
            stack += subdirectories
            for path, stamp in files:
                key = path[len(watched.root) + 1 :]
                if key.startswith(watched.prefixes) and not is_unfinished(key):
                    yield (watched.bucket, key), path, stamp


def _read(directory: str) -> tuple[list[tuple[str, Stamp]], list[str]]:
    """Return files with their stamps, and subdirectories. Like the store, it does not follow links."""
    files, subdirectories = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != STAGING:
                    subdirectories.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                try:
                    files.append((entry.path, _stamp(entry.stat(follow_symlinks=False))))
                except FileNotFoundError:
                    continue  # deleted since the directory was read
    return files, subdirectories


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _event(bucket: str, key: str) -> ParsedEvent:
    try:
        check_key(key)
    except BadInput as problem:
        return unreadable(problem.message, f"{bucket}/{key}")
    return ParsedEvent((ObjectEvent(bucket, key),))
