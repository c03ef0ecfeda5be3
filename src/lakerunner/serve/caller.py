"""The caller of a query: an HTTP client, a rule, or a test."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller, who reads the data of one org. An `admin` may also list and cancel any org's queries."""

    org_id: uuid.UUID
    name: str
    admin: bool = False
    #: The org's own limits by name. They override the settings.
    limits: Mapping[str, float] = field(default_factory=dict)
