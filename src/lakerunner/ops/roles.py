"""The roles that there are. Adding one is one class and one line."""

from __future__ import annotations

from lakerunner.bus.relay import Relay
from lakerunner.demo.role import Demo
from lakerunner.intake.role import Pubsub
from lakerunner.ops.monitor import Monitor
from lakerunner.ops.sweeper import Sweeper
from lakerunner.pipeline.boxer_role import IngestBoxer
from lakerunner.pipeline.by_signal import by_signal
from lakerunner.pipeline.ingest_role import Ingest
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.role import Role
from lakerunner.serve.query_api import QueryApi

#: What `serve` runs, in the order in which it starts them.
ROLES: tuple[type[Role], ...] = (
    QueryApi,
    Monitor,
    Relay,
    Sweeper,
    Ingest,
    IngestBoxer,
    Pubsub,
    QueryWorker,
)

#: What `serve --demo` runs besides.
DEMO_ROLES: tuple[type[Role], ...] = (Demo,)

#: The same work cut by signal, for houses of many machines.
ROLES_BY_SIGNAL: tuple[type[Role], ...] = (*by_signal(IngestBoxer), *by_signal(Ingest))
