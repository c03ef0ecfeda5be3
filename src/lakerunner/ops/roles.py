"""The roles that there are. Adding one is one class and one line; a stage of the pipeline brings its own."""

from __future__ import annotations

from lakerunner.bus.relay import Relay
from lakerunner.demo.role import Demo
from lakerunner.intake.role import Pubsub
from lakerunner.ops.monitor import Monitor
from lakerunner.ops.sweeper import Sweeper
from lakerunner.pipeline.stages import stage_roles, stage_roles_by_signal
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.role import Role
from lakerunner.serve.query_api import QueryApi

#: What `serve` runs, in the order in which it starts them.
ROLES: tuple[type[Role], ...] = (
    QueryApi,
    Monitor,
    Relay,
    Sweeper,
    *stage_roles(),
    Pubsub,
    QueryWorker,
)

#: What `serve --demo` runs besides.
DEMO_ROLES: tuple[type[Role], ...] = (Demo,)

#: The stages again, one role per signal.
ROLES_BY_SIGNAL: tuple[type[Role], ...] = stage_roles_by_signal()
