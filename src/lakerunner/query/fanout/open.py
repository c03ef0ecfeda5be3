"""Opens the workers that the settings configure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakerunner.query.fanout.addresses import addresses_of
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.tls import client_tls
from lakerunner.query.fanout.token import worker_token
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.samples.opened import Opener
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: Footers and ranges of row segments each get this fraction (1/4) of the bytes for series tables.
_ROWS_SHARE = 4


def open_workers(settings: Settings, who: str = "query-api") -> Workers:
    """The configured workers. If none are configured: this machine's worker while it runs, else this process."""
    last_resort = None if settings.query.workers.strip() else local_workers(settings, who)
    return FlightWorkers(
        addresses_of(settings),
        worker_token(settings),
        attempts=settings.query.attempts,
        last_resort=last_resort,
        patience_s=settings.query.worker_patience_s,
        tls=client_tls(settings.query),
        data_dir=settings.data.dir,
    )


def local_workers(settings: Settings, who: str) -> LocalWorkers:
    """Workers in this process, with a cache folder of its own."""
    query = settings.query
    folder = Path(query.cache_dir) / who if query.cache_dir else settings.data.dir / "cache" / who
    store = open_store(StoreConfig.of(settings))
    cache = ObjectCache(store, folder, query.cache_bytes)
    # One budget for the decoded columns of all signals, so that the most used ones stay.
    decoded: ByteLru[Any] = ByteLru(query.decoded_cache_bytes)
    samples = Opener(cache, query.table_cache_bytes, decoded)
    share = query.table_cache_bytes // _ROWS_SHARE
    rows = RowsOpener(store, cache, footer_bytes=share, range_bytes=share, decoded=decoded)
    return LocalWorkers(samples, rows, query.fetches)
