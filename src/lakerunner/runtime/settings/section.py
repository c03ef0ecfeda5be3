"""What a section of settings is, and the types that settings share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=0, le=65_535)]
Seconds = Annotated[float, Field(gt=0)]
Keep = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A group of settings. Every field has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")
