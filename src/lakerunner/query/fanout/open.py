"""Workers as the settings want them."""

from __future__ import annotations

from pathlib import Path

from lakerunner.query.fanout.addresses import addresses_of
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.tls import client_tls
from lakerunner.query.fanout.token import worker_token
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.samples.opened import Opener
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store


def open_workers(settings: Settings, who: str = "query-api") -> Workers:
    """The configured workers; with none configured, this machine's worker while it runs, else this process."""
    last_resort = None if settings.query.workers.strip() else local_workers(settings, who)
    return FlightWorkers(
        addresses_of(settings),
        worker_token(settings),
        attempts=settings.query.attempts,
        last_resort=last_resort,
        patience_s=settings.query.worker_patience_s,
        tls=client_tls(settings.query),
    )


def local_workers(settings: Settings, who: str) -> LocalWorkers:
    """Workers in this process, with a cache folder of its own."""
    query = settings.query
    folder = Path(query.cache_dir) / who if query.cache_dir else settings.data.dir / "cache" / who
    cache = ObjectCache(open_store(StoreConfig.of(settings)), folder, query.cache_bytes)
    return LocalWorkers(Opener(cache, query.table_cache_bytes, query.decoded_cache_bytes), query.fetches)
