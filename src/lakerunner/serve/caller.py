"""The caller of a query: an HTTP client, a rule, or a test."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The org of an operator who named none. It owns no data.
NO_ORG = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller, who reads the data of one org."""

    org_id: uuid.UUID
    name: str
    #: The org's own limits by name. They override the settings.
    limits: Mapping[str, float] = field(default_factory=dict)
    #: Further orgs whose running queries the caller may list and cancel; None means every org.
    operates: frozenset[uuid.UUID] | None = frozenset()

    def sees(self, org_id: uuid.UUID) -> bool:
        """Whether the caller may list and cancel the running queries of this org."""
        return org_id == self.org_id or self.operates is None or org_id in self.operates

    def to_json(self) -> dict[str, Any]:
        operates = None if self.operates is None else [str(org_id) for org_id in self.operates]
        return {"org_id": str(self.org_id), "name": self.name, "limits": dict(self.limits), "operates": operates}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Caller:
        operates = document["operates"]
        return cls(
            uuid.UUID(document["org_id"]),
            document["name"],
            document["limits"],
            None if operates is None else frozenset(map(uuid.UUID, operates)),
        )
