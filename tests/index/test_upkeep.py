import uuid

import pytest

from lakerunner.index import leases, outbox, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.upkeep import index_jobs, run_jobs
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import Conflict
from lakerunner.runtime.settings import UpkeepSettings

EAGER = UpkeepSettings(outbox_keep_s=1e-6, work_keep_s=1e-6)


def test_ended_things_are_forgotten_and_open_ones_kept(database: Database) -> None:
    ended, waiting = uuid.uuid4(), uuid.uuid4()
    with database.transaction() as tx:
        for item_id in (ended, waiting):
            work.create_item(tx, WorkItem(item_id, "ingest", uuid.uuid4(), "logs"))
        outbox.put(tx, [Outgoing("t", "k", b"1"), Outgoing("t", "k", b"2")])
    commit_item(database, ItemResult(ended))
    outbox.mark_published(database, [outbox.pending(database, 1)[0].outbox_id])
    lease = leases.acquire(database, "sweeper", "me", 30)
    assert lease is not None
    handled = run_jobs(database, index_jobs(EAGER), lease)
    assert (handled["outbox"], handled["work_item"]) == (1, 1)
    assert [p.message.payload for p in outbox.pending(database, 10)] == [b"2"]
    with database.transaction() as tx:
        assert list(work.load_items(tx, [ended, waiting])[0]) == [waiting]


def test_who_lost_the_lease_removes_nothing(database: Database) -> None:
    lease = leases.acquire(database, "sweeper", "me", 30)
    assert lease is not None
    leases.release(database, lease)
    with pytest.raises(Conflict):
        run_jobs(database, index_jobs(EAGER), lease)
