"""Open the bus that the settings select."""

from __future__ import annotations

from lakerunner.bus.contract import Bus
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.postgres import PostgresBus
from lakerunner.index.database import Database
from lakerunner.runtime.settings import Settings


def open_bus(settings: Settings, database: Database) -> Bus:
    """Open the bus without connecting: the first use does."""
    if settings.bus.kind == "kafka":
        return KafkaBus(settings.bus)
    return PostgresBus(settings.bus, database)
