"""Asks a server that speaks Loki's HTTP API."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tests.query.logqltest.suite import Case

_CATEGORIZE = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_JSON = {"Content-Type": "application/json"}
_TIMEOUT_S = 120
#: The status of a server that asks for patience, and how often and how long it gets some.
_BUSY, _PATIENCE, _PAUSE_S = 503, 10, 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str

    @property
    def document(self) -> Any:
        """The body as JSON; as text where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text.strip()


class Asker:
    """One connection, which is kept alive."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def ask(self, case: Case, *, categorized: bool = False) -> Answer:
        headers = dict(_CATEGORIZE) if categorized else {}
        params = urlencode(case.params, doseq=True)
        path = quote(case.path, safe="/%")
        if "body" in case.recorded:
            return self._send(case.method, path, json.dumps(case.recorded["body"]), headers | _JSON)
        if case.method == "POST":
            return self._send("POST", path, params, headers | _FORM)
        return self._send(case.method, f"{path}?{params}" if params else path, None, headers)

    def _send(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        """Ask, and ask again while the server says that it is too busy: a loaded machine is no wrong answer."""
        for _ in range(_PATIENCE):
            answer = self._send_once(method, path, body, headers)
            if answer.status != _BUSY:
                break
            time.sleep(_PAUSE_S)
        return answer

    def _send_once(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        if self._connection is not None:
            try:
                return self._exchange(self._connection, method, path, body, headers)
            except (http.client.HTTPException, ConnectionError):
                # A server closes connections that were idle for long.
                self._connection.close()
        self._connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT_S)
        return self._exchange(self._connection, method, path, body, headers)

    @staticmethod
    def _exchange(
        connection: http.client.HTTPConnection, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> Answer:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.read().decode("utf-8", "replace"))
