"""The API key as a request carries it: bearer, basic, or a header of its own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from lakerunner.model.errors import Denied

#: Besides `Authorization`. The second is what users of the Go system send.
_KEY_HEADERS = ("x-api-key", "x-cardinalhq-api-key")
_HOW = "send `Authorization: Bearer KEY`, or the key as the password of basic authentication"


def secret_in(headers: Mapping[str, str]) -> str:
    """The key as it was sent. Names of headers are lower case, or the mapping does not mind.

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
            raise Denied("cannot read the basic credentials of this request", hint=_HOW) from None
    if not secret:
        raise Denied("cannot answer without an API key", hint=_HOW)
    return secret


def has_secret(headers: Mapping[str, str]) -> bool:
    """Whether a key was sent at all, in whatever way."""
    return "authorization" in headers or any(header in headers for header in _KEY_HEADERS)
