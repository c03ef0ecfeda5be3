"""`Api`: the settings and services that the route handlers of every dialect share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import HTTPConnection, Request

from lakerunner.query.lake import Lake
from lakerunner.runtime.settings import ApiSettings, RulerSettings
from lakerunner.serve.admission.admission import Admission
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.caller import Caller
from lakerunner.serve.service import QueryService
from lakerunner.serve.tails.tails import Tails
from lakerunner.serve.waiting import in_turn

T = TypeVar("T")


@dataclass(frozen=True)
class Api:
    """The settings and services that the handlers of every dialect use."""

    settings: ApiSettings
    auth: Authenticator
    admission: Admission
    service: QueryService
    tails: Tails
    #: How long a deletion can be cancelled.
    delete_wait_s: float
    #: Limits and defaults of rules.
    ruler: RulerSettings
    #: Materialization rules that an org may have.
    max_rules: int

    @classmethod
    def over(
        cls,
        settings: ApiSettings,
        lake: Lake,
        auth: Authenticator,
        delete_wait_s: float = 300.0,
        ruler: RulerSettings | None = None,
        max_rules: int = 1_000,
    ) -> Api:
        admission = Admission(settings)
        service = QueryService(settings, lake, admission)
        return cls(
            settings, auth, admission, service, Tails(service), delete_wait_s, ruler or RulerSettings(), max_rules
        )

    async def caller(self, request: HTTPConnection) -> Caller:
        return await self.auth.caller(request)

    async def administrator(self, request: Request) -> Caller:
        return await self.auth.administrator(request)

    async def operator(self, request: Request) -> Caller:
        return await self.auth.operator(request)

    async def in_turn(
        self,
        request: Request,
        caller: Caller,
        kind: str,
        text: str,
        call: Callable[[RunningQuery], T],
        timeout_s: float | None = None,
    ) -> T:
        """Run a call in a thread when the org's turn comes. It stops when the client disconnects or on timeout."""
        return await in_turn(self.admission, request, caller, kind, text, call, timeout_s)

    def close(self) -> None:
        self.admission.close()
        self.service.close()
