"""Authentication: which caller and org a request belongs to.

The org comes from the API key, never from a path, a label or a query.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request

from lakerunner.index.api_keys import ApiKey, Scope, authenticate, has_secret, require, secret_in
from lakerunner.index.database import Database
from lakerunner.index.org_limits import read_limits
from lakerunner.index.orgs import DEFAULT_ORG_ID, DEFAULT_ORG_NAME, find_org
from lakerunner.model.errors import BadInput, Denied, LakeError, Missing, Unavailable
from lakerunner.runtime.telemetry import log
from lakerunner.serve.caller import NO_ORG, Caller

ORG_HEADER = "x-scope-orgid"
#: Key of the authenticated caller in a request's ASGI scope.
CALLER = "lakerunner.caller"
#: How long an org's limits are cached. A change takes effect after at most this time.
_LIMITS_TTL_S = 2.0
_MAX_ORGS = 10_000
#: Accepted callers to remember in case the index becomes unavailable.
_MAX_REMEMBERED = 10_000


#: Chooses the org of a request from its key, the org that it names, and that org's id if it exists.
OrgChoice = Callable[[ApiKey, str, uuid.UUID | None], uuid.UUID]


def key_of(request: Request, database: Database, scope: Scope) -> ApiKey:
    """Authenticate the request and return its API key. Refuses a key that lacks the scope."""
    secret = secret_in(request.headers)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    require(key, scope)
    return key


class Authenticator:
    """Finds the caller of a request. While the index is unavailable, recently accepted keys stay valid."""

    def __init__(
        self,
        database: Database,
        *,
        required: bool,
        patience_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._required = required
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        #: Accepted callers and when the index last confirmed them, by digest of the key and the requested org.
        self._accepted: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._limits: dict[uuid.UUID, tuple[float, Mapping[str, float]]] = {}

    async def caller(self, request: HTTPConnection) -> Caller:
        """The caller, who reads data of one org."""
        return await self._caller(request, _org_of)

    async def operator(self, request: HTTPConnection) -> Caller:
        """The caller of an operator's route. With an admin key, the org may be any that the key administers, or none.

        An admin key without an org administers every org, but reads the data of none.
        """
        return await self._caller(request, _org_operated)

    async def administrator(self, request: HTTPConnection) -> Caller:
        """The caller of a route that changes data: a key with the scope admin, and one org.

        An admin key without an org administers every org, and names the one that it means. Without a required key,
        everybody administers the default org.
        """
        return await run_in_threadpool(self._administrator, request)

    def _administrator(self, request: HTTPConnection) -> Caller:
        org_name = request.headers.get(ORG_HEADER, "").strip()
        if not self._required and not has_secret(request.headers):
            return self._authenticate(request, _org_of)
        secret = secret_in(request.headers)
        with self._database.transaction() as tx:
            key = authenticate(tx, secret)
            require(key, Scope.ADMIN)
            chosen = _named_org(lambda name: find_org(tx, name).org_id, org_name) if org_name else None
        if not key.org_ids and not org_name:
            raise BadInput(
                f"cannot tell which org is meant: key {key.name!r} administers all",
                hint="name one in the header X-Scope-OrgID",
            )
        if not key.org_ids and chosen is not None:
            return Caller(chosen, key.name)
        return Caller(_org_of(key, org_name, chosen), key.name)

    async def _caller(self, request: HTTPConnection, choose: OrgChoice) -> Caller:
        caller: Caller | None = request.scope.get(CALLER)
        if caller is None:
            caller = self._nobody(request)
            if caller is None:
                # In a thread: the index lookup blocks, and a slow one must not stall every other connection.
                caller = await run_in_threadpool(self._authenticate, request, choose)
            request.scope[CALLER] = caller
        return caller

    def _nobody(self, request: HTTPConnection) -> Caller | None:
        """The caller without a key, where none is required and the default org's limits are known."""
        if self._required or has_secret(request.headers) or request.headers.get(ORG_HEADER):
            return None
        limits = self._known_limits(DEFAULT_ORG_ID)
        return None if limits is None else Caller(DEFAULT_ORG_ID, "nobody", limits)

    def _authenticate(self, request: HTTPConnection, choose: OrgChoice) -> Caller:
        org_name = request.headers.get(ORG_HEADER, "").strip()
        if not self._required and not has_secret(request.headers):
            if org_name and org_name not in (str(DEFAULT_ORG_ID), DEFAULT_ORG_NAME):
                raise _org_denied()
            return Caller(DEFAULT_ORG_ID, "nobody", self._limits_of(DEFAULT_ORG_ID))
        secret = secret_in(request.headers)
        digest = hashlib.sha256(f"{secret}\n{org_name}\n{choose.__name__}".encode(errors="surrogateescape")).digest()
        try:
            caller = self._look_up(secret, org_name, choose)
        except Unavailable as reason:
            return self._recall(digest, reason)
        except LakeError:
            with self._lock:
                self._accepted.pop(digest, None)
            raise
        with self._lock:
            self._accepted[digest] = caller, self._clock()
            self._accepted.move_to_end(digest)
            if len(self._accepted) > _MAX_REMEMBERED:
                self._accepted.popitem(last=False)
        return caller

    def _look_up(self, secret: str, org_name: str, choose: OrgChoice) -> Caller:
        with self._database.transaction() as tx:
            key = authenticate(tx, secret)
            require(key, Scope.QUERY)
            chosen = _named_org(lambda name: find_org(tx, name).org_id, org_name) if org_name else None
        org_id = choose(key, org_name, chosen)
        # Naming an org narrows what an operator sees to that org.
        operates = frozenset[uuid.UUID]() if org_name else key.operates
        return Caller(org_id, key.name, self._limits_of(org_id), operates)

    def _limits_of(self, org_id: uuid.UUID) -> Mapping[str, float]:
        """The org's own limits, cached briefly. While the index is unavailable, the last known limits apply."""
        known = self._known_limits(org_id)
        if known is not None:
            return known
        _, limits = self._limits.get(org_id, (0.0, {}))
        try:
            limits = self._database.read(lambda tx: read_limits(tx, org_id))
        except Unavailable:
            log().warning("cannot read the limits of an org; the last known limits apply", org=str(org_id))
        if len(self._limits) >= _MAX_ORGS:
            self._limits.clear()
        self._limits[org_id] = time.monotonic(), limits
        return limits

    def _known_limits(self, org_id: uuid.UUID) -> Mapping[str, float] | None:
        read_at_s, limits = self._limits.get(org_id, (-math.inf, {}))
        return limits if time.monotonic() - read_at_s < _LIMITS_TTL_S else None

    def _recall(self, digest: bytes, reason: Unavailable) -> Caller:
        with self._lock:
            caller, accepted_at_s = self._accepted.get(digest, (None, 0.0))
        if caller is None or self._clock() - accepted_at_s > self._patience_s:
            raise reason
        return caller


def _named_org(find: Callable[[str], uuid.UUID], org_name: str) -> uuid.UUID | None:
    # An unknown org must be indistinguishable from one that the key does not cover: same lookup, same error.
    try:
        return find(org_name)
    except Missing:
        return None


def _org_of(key: ApiKey, org_name: str, chosen: uuid.UUID | None) -> uuid.UUID:
    if org_name:
        if chosen is None or chosen not in key.org_ids:
            raise _org_denied()
        return chosen
    if len(key.org_ids) == 1:
        return next(iter(key.org_ids))
    if not key.org_ids:
        raise Denied(f"cannot query with key {key.name!r}: it covers no org", hint="create a key with --org")
    raise BadInput(
        f"cannot tell which org to query: key {key.name!r} covers {len(key.org_ids)} orgs",
        hint="name one of them in the header X-Scope-OrgID",
    )


def _org_operated(key: ApiKey, org_name: str, chosen: uuid.UUID | None) -> uuid.UUID:
    if key.operates is None and chosen is not None:
        return chosen
    if key.operates != frozenset() and not org_name:
        return next(iter(key.org_ids)) if len(key.org_ids) == 1 else NO_ORG
    return _org_of(key, org_name, chosen)


def _org_denied() -> Denied:
    return Denied(
        "cannot query that org: the key does not cover it",
        hint="leave X-Scope-OrgID out, or name an org that the key covers",
    )
