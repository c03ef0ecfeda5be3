"""How to reach the bucket: small, frozen, picklable, and without secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakerunner.runtime.settings import Settings
from lakerunner.store.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The input of `open_store`. It is sent to Spark tasks, each of which opens its own store."""

    url: str
    region: str = ""
    endpoint: str = ""
    allow_http: bool = False
    timeout_s: float = 30.0
    max_attempts: int = 6
    circuit_failures: int = 5
    circuit_pause_s: float = 5.0
    #: obstore's option -> the environment variable with its value, as ("access_key_id", "AWS_ACCESS_KEY_ID"). Empty
    #: means the provider's default chain: its own variables, or the identity of the machine or pod.
    credentials: tuple[tuple[str, str], ...] = ()
    #: Whether a missing folder is created. Only for the default folder: if a configured folder is missing, its disk is
    #: probably not mounted, and with a new folder all objects would seem to be gone.
    create: bool = True

    @classmethod
    def of(cls, settings: Settings) -> StoreConfig:
        store = settings.store
        return cls(
            url=settings.store_url,
            region=store.region,
            endpoint=store.endpoint,
            allow_http=store.allow_http,
            timeout_s=store.timeout_s,
            max_attempts=store.max_attempts,
            circuit_failures=store.circuit_failures,
            circuit_pause_s=store.circuit_pause_s,
            create=not store.url,
        )

    def credential_values(self) -> dict[str, str]:
        """Read the secrets from this process's environment."""
        values = {}
        for option, variable in self.credentials:
            if variable not in os.environ:
                reason = f"cannot open {self.url}: the variable {variable} is not set"
                raise StoreUnavailable(reason, hint=f"set {variable}", where=self.url)
            values[option] = os.environ[variable]
        return values
