"""Posts JSON to receivers of alerts: over TLS with own certificates, with a bearer token or basic authentication.

Secrets are read from their files at every request, so that they can be rotated without a restart.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lakerunner.model.errors import BadInput

_TIMEOUT_S = 5.0

#: Posts JSON to an address; raises OSError when it is not taken.
Post = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class Poster:
    """How receivers are reached. Empty means: not used."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    bearer_file: str = ""
    basic_user: str = ""
    basic_password_file: str = ""
    timeout_s: float = _TIMEOUT_S

    def __call__(self, url: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "lakerunner", **self._credentials()}
        request = urllib.request.Request(url, body, headers)
        try:
            with _opener(self._tls(url)).open(request, timeout=self.timeout_s) as answer:
                answer.read(4_096)
        except (urllib.error.URLError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise OSError(str(error)) from None

    def _credentials(self) -> dict[str, str]:
        if self.bearer_file:
            return {"Authorization": f"Bearer {_secret(self.bearer_file)}"}
        if self.basic_user:
            password = _secret(self.basic_password_file) if self.basic_password_file else ""
            pair = base64.b64encode(f"{self.basic_user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def _tls(self, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file or None)
        return context


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A receiver that redirects would be given our credentials for elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _secret(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def addresses_of(text: str, setting: str) -> list[str]:
    """The addresses of a setting, separated by commas."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    for address in found:
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
            # Without the address: a webhook's address is a secret.
            raise BadInput(
                f"cannot send alerts: an address in {setting} is not http:// or https://",
                hint="correct it",
                where=setting,
            )
    return found
