"""The roles that there are, in the order in which `serve` starts them. Adding one is one class and one line."""

from __future__ import annotations

from lakerunner.bus.relay_role import Relay
from lakerunner.ops.monitor import Monitor
from lakerunner.ops.sweeper import Sweeper
from lakerunner.runtime.role import Role

ROLES: tuple[type[Role], ...] = (
    Monitor,
    Relay,
    Sweeper,
)
