"""Who asks a query: a person's request, a rule, or a test."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller reads the data of one org. An `admin` may also see and cancel queries of all orgs."""

    org_id: uuid.UUID
    name: str
    admin: bool = False
    #: Limits that the org has of its own, in place of the settings'.
    limits: Mapping[str, float] = field(default_factory=dict)
