"""A cell of `make faults` without a death: the store refuses for a while, with objects waiting at every stage.

Afterwards all objects are done. None may be in quarantine and no message among the dead letters, although the refusal
lasts for more attempts than a message has.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from lakerunner.index.orgs import create_org
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.store import keys
from tests.components.moto import CREDENTIALS, Moto, running_moto
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.faults.event_folder import EventFolder
from tests.faults.exactness import check_index, check_rows
from tests.faults.victims import run_here
from tests.pipeline.lake import COLLECTOR, ORG, Lake, otlp
from tests.pipeline.s3_lake import s3_settings
from tests.store.faulty_proxy import FaultyProxy, faulty_proxy

#: What the proxy refuses ("METHOD /bucket/key" contains it), and how.
_REFUSALS = (
    ("", 403, "AccessDenied"),
    ("", 403, "RequestTimeTooSkewed"),
    ("", 301, "PermanentRedirect"),
    ("", 400, "ExpiredToken"),
    # Listing works, so the store answers the readiness probe.
    ("/otel-raw/", 403, "AccessDenied"),
    ("PUT /", 403, "AccessDenied"),
)
_MAX_ATTEMPTS = 2


def run_refused(bus: dict[str, str], seed: int, url: str, folder: Path) -> str:
    """Return the figures; raise what does not hold."""
    os.environ.update(CREDENTIALS)
    with running_moto(folder) as moto, faulty_proxy(moto.host, moto.port) as proxy:
        lake = _lake(bus, url, folder, moto, proxy)
        try:
            return _run(lake, proxy, seed, EventFolder(folder / "events"))
        finally:
            lake.close()


def _lake(bus: dict[str, str], url: str, folder: Path, moto: Moto, proxy: FaultyProxy) -> Lake:
    settings = s3_settings(url, folder, moto, proxy.endpoint)
    more_bus = {"max_attempts": _MAX_ATTEMPTS, "retry_base_s": 0.02, "retry_max_s": 0.1, **bus}
    changed = {
        "bus": settings.bus.model_copy(update=more_bus),
        "store": settings.store.model_copy(update={"circuit_pause_s": 0.05}),
    }
    lake = Lake(settings.model_copy(update=changed))
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
    return lake


def _run(lake: Lake, proxy: FaultyProxy, seed: int, events: EventFolder) -> str:
    draw = random.Random(seed)
    part, status, code = _REFUSALS[seed % len(_REFUSALS)]
    sent: dict[Signal, list[bytes]] = {signal: [] for signal in SIGNALS}

    def put(signal: Signal) -> None:
        body = otlp(signal, 4 * draw.randint(3, 20), seed=draw.randrange(1 << 30))
        key = f"{keys.raw_prefix(ORG)}{COLLECTOR}/{signal}_{len(sent[signal])}.binpb"
        lake.store.put(key, body)
        sent[signal].append(body)
        events.send(own_bucket(lake.settings), key)

    def is_done() -> bool:
        return events.is_empty and lake.states() == {"done": sum(map(len, sent.values()))}

    runner = IngestRunner(lake.settings, lake.database, run_here)
    stages = [clean_roles.intake(lake, events), clean_roles.relay(lake), clean_roles.boxer(lake)]
    with beside(*stages):
        for signal in SIGNALS:
            put(signal)
        until(lambda: events.is_empty and lake.states() == {"bundled": len(SIGNALS)}, "objects wait for ingest")
    for signal in SIGNALS:
        put(signal)
    proxy.refusals = {part: (status, code)}
    with beside(*stages, clean_roles.ingest(lake, runner)):
        # More rounds of refusals than messages have attempts, and events at intake.
        until(lambda: proxy.refused > 20 * _MAX_ATTEMPTS, "the store has refused often enough")
        assert "quarantined" not in lake.states(), lake.reasons()
        proxy.refusals = {}
        until(is_done, "all is done after the refusal")
    rows = check_rows(lake, sent)
    check_index(lake, sent)
    return f"refused {part or 'all'} with {status} {code}: {proxy.refused} calls, rows {rows}"
