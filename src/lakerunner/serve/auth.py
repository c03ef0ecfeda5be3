"""Who asks, and for which org: the org comes from the API key, never from a path, a label or a query."""

from __future__ import annotations

import hashlib
import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from lakerunner.index.api_keys import ApiKey, Scope, authenticate, has_secret, require, secret_in
from lakerunner.index.database import Database
from lakerunner.index.org_limits import read_limits
from lakerunner.index.orgs import DEFAULT_ORG_ID, DEFAULT_ORG_NAME, find_org
from lakerunner.model.errors import BadInput, Denied, LakeError, Missing, Unavailable
from lakerunner.runtime.telemetry import log
from lakerunner.serve.caller import Caller

ORG_HEADER = "x-scope-orgid"
#: Where a request's scope holds its caller once it is known.
CALLER = "lakerunner.caller"
#: How long limits of an org are not asked for again: a change is seen by then.
_LIMITS_KEPT_S = 2.0
_MAX_ORGS = 10_000
#: Callers remembered for when the index does not answer.
_MAX_KNOWN = 10_000


def key_of(request: Request, database: Database, scope: Scope) -> ApiKey:
    """The key of this request, holding the scope."""
    secret = secret_in(request.headers)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    require(key, scope)
    return key


class Authenticator:
    """Finds the caller of a request. While the index does not answer, keys that it accepted recently stay valid."""

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
        #: Callers by digest of their key and the org they named, with the time of the index's last word.
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._limits: dict[uuid.UUID, tuple[float, Mapping[str, float]]] = {}

    async def caller(self, request: Request) -> Caller:
        known: Caller | None = request.scope.get(CALLER)
        if known is None:
            # In a thread: the index blocks, and one slow lookup must not hold up every connection.
            known = request.scope[CALLER] = await run_in_threadpool(self._caller, request)
        return known

    def _caller(self, request: Request) -> Caller:
        wanted = request.headers.get(ORG_HEADER, "").strip()
        if not self._required and not has_secret(request.headers):
            if wanted and wanted not in (str(DEFAULT_ORG_ID), DEFAULT_ORG_NAME):
                raise _not_yours()
            return Caller(DEFAULT_ORG_ID, "nobody", admin=True, limits=self._limits_of(DEFAULT_ORG_ID))
        secret = secret_in(request.headers)
        digest = hashlib.sha256(f"{secret}\n{wanted}".encode(errors="surrogateescape")).digest()
        try:
            caller = self._looked_up(secret, wanted)
        except Unavailable as reason:
            return self._remembered(digest, reason)
        except LakeError:
            with self._lock:
                self._known.pop(digest, None)
            raise
        with self._lock:
            self._known[digest] = caller, self._clock()
            self._known.move_to_end(digest)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return caller

    def _looked_up(self, secret: str, wanted: str) -> Caller:
        with self._database.transaction() as tx:
            key = authenticate(tx, secret)
            require(key, Scope.QUERY)
            chosen = _named_org(lambda name: find_org(tx, name).org_id, wanted) if wanted else None
        org_id = _org_of(key, wanted, chosen)
        return Caller(org_id, key.name, Scope.ADMIN in key.scopes, self._limits_of(org_id))

    def _limits_of(self, org_id: uuid.UUID) -> Mapping[str, float]:
        """As they were a moment ago. While the index does not answer, those that are known hold."""
        kept_at_s, limits = self._limits.get(org_id, (-math.inf, {}))
        if time.monotonic() - kept_at_s < _LIMITS_KEPT_S:
            return limits
        try:
            with self._database.transaction() as tx:
                limits = read_limits(tx, org_id)
        except Unavailable:
            log().warning("limits of an org as known before", org=str(org_id))
        if len(self._limits) >= _MAX_ORGS:
            self._limits.clear()
        self._limits[org_id] = time.monotonic(), limits
        return limits

    def _remembered(self, digest: bytes, reason: Unavailable) -> Caller:
        with self._lock:
            caller, at_s = self._known.get(digest, (None, 0.0))
        if caller is None or self._clock() - at_s > self._patience_s:
            raise reason
        return caller


def _named_org(find: Callable[[str], uuid.UUID], wanted: str) -> uuid.UUID | None:
    # Looked up in the same way whether or not the key holds it, and refused in the same words.
    try:
        return find(wanted)
    except Missing:
        return None


def _org_of(key: ApiKey, wanted: str, chosen: uuid.UUID | None) -> uuid.UUID:
    if wanted:
        if chosen is None or chosen not in key.org_ids:
            raise _not_yours()
        return chosen
    if len(key.org_ids) == 1:
        return next(iter(key.org_ids))
    if not key.org_ids:
        raise Denied(f"cannot query with key {key.name!r}: it holds no org", hint="make one with --org")
    raise BadInput(
        f"cannot tell which org to ask: key {key.name!r} holds {len(key.org_ids)}",
        hint="name one in the header X-Scope-OrgID",
    )


def _not_yours() -> Denied:
    return Denied(
        "cannot ask for that org: the key does not hold it", hint="leave X-Scope-OrgID out, or name an org of the key"
    )
