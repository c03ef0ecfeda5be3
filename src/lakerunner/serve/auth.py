"""Who is asking: an API key from the request's headers, checked against the index."""

from __future__ import annotations

from starlette.requests import Request

from lakerunner.index.api_keys import ApiKey, Scope, authenticate, require, secret_in
from lakerunner.index.database import Database


def key_of(request: Request, database: Database, scope: Scope) -> ApiKey:
    """The key of this request, holding the scope."""
    secret = secret_in(request.headers)
    with database.transaction() as tx:
        key = authenticate(tx, secret)
    require(key, scope)
    return key
