"""API keys: created, revoked, read from request headers, and checked. Only the hash of a secret is stored."""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakerunner.model.errors import BadInput, Denied, Missing

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from lakerunner.index.database import Connection

#: Lets scanners of repositories and logs recognise a leaked key.
_PREFIX = "lrk_"
#: Headers accepted besides `Authorization`. Clients of the Go system send the second.
_KEY_HEADERS = ("x-api-key", "x-cardinalhq-api-key")
CREDENTIAL_HEADERS = ("authorization", *_KEY_HEADERS)
_HOW = "send `Authorization: Bearer KEY`, or the key as the password of basic authentication"


class Scope(enum.StrEnum):
    INGEST = "ingest"
    QUERY = "query"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: uuid.UUID
    name: str
    scopes: frozenset[Scope]
    org_ids: frozenset[uuid.UUID]
    created_at: datetime
    revoked_at: datetime | None

    @property
    def operates(self) -> frozenset[uuid.UUID] | None:
        """The orgs that the key administers; None means every org, which an admin key without an org administers."""
        if Scope.ADMIN not in self.scopes:
            return frozenset()
        return self.org_ids or None


@dataclass(frozen=True, slots=True)
class NewApiKey:
    key: ApiKey
    #: Shown to its owner once and never again.
    secret: str


_SELECT = (
    "SELECT key_id, name, scopes, created_at, revoked_at,"
    " ARRAY(SELECT org_id FROM api_key_org o WHERE o.key_id = k.key_id) AS org_ids FROM api_key k"
)


def create_key(tx: Connection, name: str, scopes: Sequence[Scope], org_ids: Sequence[uuid.UUID]) -> NewApiKey:
    """Create a key with these scopes for these orgs."""
    if not scopes:
        raise BadInput("cannot create a key: it has no scope", hint="give it --scope ingest, query or admin")
    if not org_ids and set(scopes) != {Scope.ADMIN}:
        raise BadInput("cannot create a key for ingest or query: it has no org", hint="name one with --org")
    secret = _PREFIX + secrets.token_urlsafe(32)
    key_id = uuid.uuid4()
    tx.execute(
        "INSERT INTO api_key (key_id, name, hash, scopes) VALUES (%s, %s, %s, %s)",
        [key_id, name, _hash(secret), sorted(set(scopes))],
    )
    for org_id in sorted(set(org_ids)):
        tx.execute("INSERT INTO api_key_org (key_id, org_id) VALUES (%s, %s)", [key_id, org_id])
    return NewApiKey(_one(tx, "key_id = %s", key_id), secret)


def list_keys(tx: Connection) -> list[ApiKey]:
    return [_key(row) for row in tx.execute(_SELECT + " ORDER BY created_at, key_id").fetchall()]


def revoke_key(tx: Connection, key_id: uuid.UUID) -> ApiKey:
    """Revoke a key, from the next request on. Revoking it again keeps the first time."""
    tx.execute("UPDATE api_key SET revoked_at = coalesce(revoked_at, now()) WHERE key_id = %s", [key_id])
    return _one(tx, "key_id = %s", key_id)


def delete_keys(tx: Connection, name: str, org_id: uuid.UUID) -> None:
    """Delete the keys of this name that cover this org and no other. For processes that make their own keys."""
    tx.execute(
        "DELETE FROM api_key k WHERE name = %s AND ARRAY(SELECT o.org_id FROM api_key_org o"
        " WHERE o.key_id = k.key_id) = ARRAY[%s::uuid]",
        [name, org_id],
    )


def authenticate(tx: Connection, secret: str) -> ApiKey:
    """Return the key of a secret. The error is the same for unknown and revoked, so that it reveals nothing."""
    try:
        key = _one(tx, "hash = %s", _hash(secret))
    except Missing:
        key = None
    if key is None or key.revoked_at is not None:
        raise Denied(
            "cannot accept this API key: it is unknown or revoked", hint="create one with `lakerunner key create`"
        )
    return key


def require(key: ApiKey, scope: Scope) -> None:
    """Raise Denied unless the key has the scope. The scope admin includes all others."""
    if scope not in key.scopes and Scope.ADMIN not in key.scopes:
        raise Denied(f"cannot use the key {key.name!r}: it lacks the scope {scope}", hint="use a key with that scope")


def secret_in(headers: Mapping[str, str]) -> str:
    """Return the secret from request headers: bearer, basic, or a key header. Header names must match in lower case.

    >>> secret_in({"authorization": "Bearer lrk_secret"}), secret_in({"x-api-key": "lrk_secret"})
    ('lrk_secret', 'lrk_secret')
    """
    for header in _KEY_HEADERS:
        if value := headers.get(header):
            return value
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    secret = ""
    if scheme.lower() == "bearer":
        secret = rest.strip()
    elif scheme.lower() == "basic":
        try:
            secret = base64.b64decode(rest, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            raise Denied(
                "cannot read the request's basic credentials: they are not base64 of UTF-8 text", hint=_HOW
            ) from None
    if not secret:
        raise Denied("cannot answer the request: it has no API key", hint=_HOW)
    return secret


def has_secret(headers: Mapping[str, str]) -> bool:
    """Return whether the request carries any credential."""
    return any(header in headers for header in CREDENTIAL_HEADERS)


def _one(tx: Connection, condition: str, value: object) -> ApiKey:
    row = tx.execute(f"{_SELECT} WHERE {condition}", [value]).fetchone()
    if row is None:
        raise Missing("cannot find that API key", hint="see `lakerunner key list`")
    return _key(row)


def _key(row: DictRow) -> ApiKey:
    return ApiKey(
        key_id=row["key_id"],
        name=row["name"],
        scopes=frozenset(Scope(scope) for scope in row["scopes"]),
        org_ids=frozenset(row["org_ids"]),
        created_at=row["created_at"],
        revoked_at=row["revoked_at"],
    )


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
