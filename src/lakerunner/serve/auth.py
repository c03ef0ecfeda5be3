"""Who is asking: an API key from the request's headers, checked against the index."""

from __future__ import annotations

import base64
import binascii

from starlette.requests import Request

from lakerunner.index.api_keys import ApiKey, Scope, authenticate, require
from lakerunner.index.database import Database
from lakerunner.model.errors import Denied

#: Besides `Authorization`. The second is what users of the Go system send.
_KEY_HEADERS = ("x-api-key", "x-cardinalhq-api-key")
_HOW = "send `Authorization: Bearer KEY`, or the key as the password of basic authentication"


def secret_of(request: Request) -> str:
    """The key as it was sent: bearer, basic (as the password), or a header of its own."""
    for header in _KEY_HEADERS:
        if value := request.headers.get(header):
            return value
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            _, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Denied("cannot read the basic credentials of this request", hint=_HOW) from None
        if password:
            return password
    raise Denied("cannot answer without an API key", hint=_HOW)


def has_secret(request: Request) -> bool:
    """Whether a key was sent at all, in whatever way."""
    return "authorization" in request.headers or any(header in request.headers for header in _KEY_HEADERS)


def key_of(request: Request, database: Database, scope: Scope) -> ApiKey:
    """The key of this request, holding the scope."""
    secret = secret_of(request)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    require(key, scope)
    return key
