"""Record events in the ledger: HEAD each object, then write rows, messages and rejections in one transaction."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lakerunner.bus.announce import announce
from lakerunner.index.database import Connection, Database
from lakerunner.index.ledger import known_stamps, record_seen, set_stamps
from lakerunner.index.orgs import list_orgs
from lakerunner.index.profiles import list_profiles
from lakerunner.intake.buckets import Buckets, own_bucket, resolve_address
from lakerunner.intake.events import ObjectEvent, ParsedEvent
from lakerunner.intake.mapping import KeyMap, Mapped, NotAnInput, ObjectOwner, Unmapped
from lakerunner.intake.metrics import BATCH_SECONDS, EVENTS
from lakerunner.intake.rejections import RejectedKind, Rejection, clear_rejections, put_rejected
from lakerunner.model.errors import BadInput, Denied, LakeError, Missing
from lakerunner.model.ids import hashed_id
from lakerunner.model.raw_object import RawObject
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log
from lakerunner.store.bucket import ObjectMeta, version_of
from lakerunner.store.errors import StoreUnavailable
from lakerunner.store.object_store import ObjectStore

#: Errors that concern one object alone: it cannot be read, or its key cannot be used. The event is rejected.
_OWN_FAULTS = (BadInput, Denied)
#: Rejections logged per batch; the table has them all.
_LOGGED = 5


@dataclass
class Recorded:
    """The outcome of a batch."""

    #: recorded, known, forgotten, gone, ignored, later, and the kinds of rejection -> how many.
    counts: Counter[str] = field(default_factory=Counter)
    #: Position in the batch -> why the event must be retried: it is not in the ledger and may not be acknowledged.
    later: dict[int, LakeError] = field(default_factory=dict)
    #: Whether the lake's own bucket serves nobody. Then no event can be of use before it does.
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """An object that events of this batch may refer to."""

    bucket: str
    key: str
    owner: ObjectOwner


@dataclass
class _Batch:
    """What a batch will write in its transaction."""

    source: str
    recorded: Recorded = field(default_factory=Recorded)
    rejections: list[Rejection] = field(default_factory=list)
    objects: list[RawObject] = field(default_factory=list)
    #: Object -> how its file looks now, for objects in folders.
    stamps: dict[uuid.UUID, uuid.UUID] = field(default_factory=dict)

    def reject(self, kind: RejectedKind, reason: str, bucket: str = "", key: str = "", body: str = "") -> None:
        self.recorded.counts[kind] += 1
        self.rejections.append(Rejection(kind, self.source, reason, bucket, key, body))


class Recorder:
    """Writes arrived objects into the ledger. Safe to share between threads; any number of processes may run one."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._buckets = Buckets(settings)
        self._heads = ThreadPoolExecutor(settings.intake.head_threads, thread_name_prefix="head")

    def close(self) -> None:
        self._heads.shutdown(wait=False, cancel_futures=True)

    def key_map(self) -> KeyMap:
        """Read the present profiles and orgs."""
        with self._database.transaction() as tx:
            profiles, orgs = list_profiles(tx), list_orgs(tx)
        # A trailing slash would keep the bucket from matching events.
        profiles = [replace(profile, bucket=profile.bucket.rstrip("/")) for profile in profiles]
        return KeyMap(
            profiles, {org.org_id for org in orgs}, own_bucket(self._settings), self._settings.intake.default_org
        )

    def store(self, key_map: KeyMap, bucket: str) -> ObjectStore:
        return self._buckets.store(bucket, key_map.profiles_of(bucket))

    def record_events(
        self, messages: Sequence[ParsedEvent], source: str, only_orgs: frozenset[uuid.UUID] | None = None
    ) -> Recorded:
        """Record the objects of messages. When this returns, all but `later` is durable and may be acknowledged.

        With `only_orgs`, an object of another org is refused. Raises when the index does not answer; then nothing of
        the batch was recorded.
        """
        started = time.perf_counter()
        batch = _Batch(source)
        key_map = self.key_map()
        meant: list[list[list[_Target]]] = []
        for message in messages:
            batch.recorded.counts["ignored"] += message.ignored
            for problem in message.unreadable:
                batch.reject(RejectedKind.MALFORMED, problem.reason, body=problem.body)
            meant.append([_targets(batch, key_map, event, only_orgs) for event in message.objects])
        self._ask_store(batch, key_map, meant)
        self._commit(batch)
        BATCH_SECONDS.labels(source).observe(time.perf_counter() - started)
        return batch.recorded

    def record_listed(self, key_map: KeyMap, bucket: str, page: Sequence[ObjectMeta], source: str) -> Recorded:
        """Record objects from a listing, which is as reliable as a HEAD per object."""
        batch = _Batch(source)
        found: dict[_Target, ObjectMeta] = {}
        for meta in page:
            mapped = key_map.owner_of(bucket, meta.key)
            if isinstance(mapped, ObjectOwner):
                found[_Target(bucket, meta.key, mapped)] = meta
            else:
                _not_placed(batch, bucket, meta.key, mapped)
        # What could not be read is found by the next listing.
        batch.recorded.counts["later"] += len(self._identify(batch, key_map, found))
        self._commit(batch, drop_known=True)
        return batch.recorded

    def _ask_store(self, batch: _Batch, key_map: KeyMap, meant: list[list[list[_Target]]]) -> None:
        """Send one HEAD per named object, because an event's own size and etag are not trusted."""
        targets = dict.fromkeys(target for events in meant for event in events for target in event)
        answers = dict(zip(targets, self._heads.map(self._asking(key_map), targets), strict=True))
        found = {target: answer for target, answer in answers.items() if isinstance(answer, ObjectMeta)}
        answers |= self._identify(batch, key_map, found)
        for target, answer in answers.items():
            if isinstance(answer, _OWN_FAULTS):
                batch.reject(RejectedKind.UNUSABLE, answer.message, target.bucket, target.key)
        for position, events in enumerate(meant):
            for event in filter(None, events):
                answered = [answers[target] for target in event]
                failed = [
                    a for a in answered if isinstance(a, LakeError) and not isinstance(a, (Missing, *_OWN_FAULTS))
                ]
                if failed:
                    batch.recorded.later[position] = failed[0]
                    batch.recorded.counts["later"] += 1
                    batch.recorded.is_blocked |= any(self._is_own(error) for error in failed)
                elif all(isinstance(answer, Missing) for answer in answered):
                    batch.recorded.counts["gone"] += 1

    def _identify(
        self, batch: _Batch, key_map: KeyMap, found: Mapping[_Target, ObjectMeta]
    ) -> dict[_Target, LakeError]:
        """Add the objects to the batch; return those whose content could not be read.

        An object in a folder is identified by its content, because path, inode and time change with a copy. A file
        that looks as it did when it was last seen is not read.
        """
        stamps = {
            target: hashed_id(target.bucket.encode(), target.key.encode(), version_of(meta).encode())
            for target, meta in found.items()
            if target.bucket.startswith("file:")
        }
        known: set[uuid.UUID] = set()
        if stamps:
            with self._database.transaction() as tx:
                known = known_stamps(tx, list(stamps.values()))
        unknown = [target for target in found if stamps.get(target) not in known]
        batch.recorded.counts["known"] += len(found) - len(unknown)

        def version(target: _Target) -> str | LakeError:
            meta = found[target]
            if target not in stamps:
                return version_of(meta)
            try:
                return self.store(key_map, target.bucket).content_version(target.key, meta.etag) or version_of(meta)
            except LakeError as error:
                return error

        failed: dict[_Target, LakeError] = {}
        for target, answer in zip(unknown, self._heads.map(version, unknown), strict=True):
            if isinstance(answer, LakeError):
                failed[target] = answer
                continue
            owner, meta = target.owner, found[target]
            raw = RawObject(
                owner.org_id, owner.collector, owner.signal, target.bucket, target.key, answer, meta.size_bytes,
                # A file's time may be any, even one that the index cannot store.
                arrived_ns=min(meta.modified_ns, time.time_ns()),
            )  # fmt: skip
            batch.objects.append(raw)
            if target in stamps:
                batch.stamps[raw.object_id] = stamps[target]
        return failed

    def _is_own(self, error: LakeError) -> bool:
        return isinstance(error, StoreUnavailable) and error.where == self._settings.store_url

    def _asking(self, key_map: KeyMap) -> Callable[[_Target], ObjectMeta | LakeError]:
        def ask(target: _Target) -> ObjectMeta | LakeError:
            try:
                store = self.store(key_map, target.bucket)
            except LakeError as error:
                # The bucket cannot be opened, which is not the object's fault: the event must be retried.
                return StoreUnavailable(error.message, hint=error.hint, where=target.bucket)
            try:
                return store.head(target.key)
            except LakeError as error:
                return error

        return ask

    def _commit(self, batch: _Batch, *, drop_known: bool = False) -> None:
        named = len(batch.objects)
        # Sorted, so that two transactions with the same rows wait for each other instead of deadlocking.
        objects = sorted(batch.objects, key=lambda each: each.object_id)
        crash_point("intake_before_record")
        new: list[RawObject] = []
        forgotten: list[RawObject] = []
        if objects or batch.rejections:
            with self._database.transaction() as tx:
                if drop_known:
                    known = _known(tx, objects)
                    objects = [each for each in objects if each.object_id not in known]
                new = record_seen(tx, objects)
                set_stamps(tx, batch.stamps)
                forgotten = _forgotten(tx, objects, new)
                announce(tx, new)
                clear_rejections(tx, [(each.bucket, each.key) for each in new])
                put_rejected(tx, batch.rejections)
        counts = batch.recorded.counts
        counts["recorded"], counts["forgotten"] = len(new), len(forgotten)
        counts["known"] += named - len(new) - len(forgotten)
        for outcome, count in counts.items():
            EVENTS.labels(batch.source, outcome).inc(count)
        if forgotten:
            log().warning("objects not ingested: older than what the ledger remembers", source=batch.source,
                          objects=len(forgotten), bucket=forgotten[0].bucket, key=forgotten[0].key)  # fmt: skip
        for rejection in batch.rejections[:_LOGGED]:
            log().warning("event rejected", source=batch.source, kind=rejection.kind.value, bucket=rejection.bucket,
                          key=rejection.key, reason=rejection.reason)  # fmt: skip


def _targets(
    batch: _Batch, key_map: KeyMap, event: ObjectEvent, only_orgs: frozenset[uuid.UUID] | None
) -> list[_Target]:
    """Return the objects that an event may refer to; none when it was rejected or ignored."""
    targets = []
    refusals: list[tuple[str, str, Mapped | None]] = []
    for candidate in event.candidates:
        found = resolve_address(key_map.buckets, event.bucket, candidate)
        mapped = None if found is None else key_map.owner_of(*found)
        if found is not None and isinstance(mapped, ObjectOwner):
            targets.append(_Target(*found, mapped))
        else:
            refusals.append((*(found or (event.bucket, candidate)), mapped))
    allowed = [target for target in targets if only_orgs is None or target.owner.org_id in only_orgs]
    if targets and not allowed:
        reason = f"the API key is not for the org {targets[0].owner.org_id}"
        batch.reject(RejectedKind.DENIED, reason, targets[0].bucket, targets[0].key)
    if not targets:
        bucket, key, mapped = refusals[0]
        if mapped is None:
            batch.reject(RejectedKind.FOREIGN, "no profile names this bucket, and it is not store.url", bucket, key)
        else:
            _not_placed(batch, bucket, key, mapped)
    return allowed


def _not_placed(batch: _Batch, bucket: str, key: str, mapped: Mapped) -> None:
    if isinstance(mapped, NotAnInput):
        batch.recorded.counts["ignored"] += 1
    elif not isinstance(mapped, ObjectOwner):
        kind = RejectedKind.UNMAPPED if isinstance(mapped, Unmapped) else RejectedKind.UNUSABLE
        batch.reject(kind, mapped.reason, bucket, key)


def _forgotten(tx: Connection, objects: Sequence[RawObject], new: Sequence[RawObject]) -> list[RawObject]:
    """Those that the ledger neither knows nor took: it may have known them before its org's horizon."""
    others = set(objects) - set(new)
    known = _known(tx, others) if others else set()
    return [each for each in others if each.object_id not in known]


def _known(tx: Connection, objects: Iterable[RawObject]) -> set[uuid.UUID]:
    rows = tx.execute(
        "SELECT object_id FROM raw_object WHERE object_id = ANY(%s)", [[each.object_id for each in objects]]
    ).fetchall()
    return {row["object_id"] for row in rows}
