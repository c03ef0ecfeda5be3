"""How to reach the bucket: small, frozen, picklable, and without secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """What `open_store` needs. It travels to Spark tasks, which open a store of their own."""

    url: str
    region: str = ""
    endpoint: str = ""
    allow_http: bool = False
    timeout_s: float = 30.0
    max_attempts: int = 6
    circuit_failures: int = 5
    circuit_pause_s: float = 5.0
    #: obstore's option -> the variable that holds its value, as ("access_key_id", "AWS_ACCESS_KEY_ID"). Empty means
    #: what the provider's own chain finds: its variables, the machine's or the pod's identity.
    credentials: tuple[tuple[str, str], ...] = ()
    #: Whether a folder that is not there is made. Only that of the embedded default: where somebody named a folder,
    #: its absence means that its disk is not mounted, and every object in it would seem to be gone.
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
        """The secrets themselves, read from this process' environment now."""
        values = {}
        for option, variable in self.credentials:
            if variable not in os.environ:
                raise BadInput(f"cannot open {self.url}: the variable {variable} is not set", hint=f"set {variable}")
            values[option] = os.environ[variable]
        return values
