"""What must hold when nothing waits any more: every row that was sent is stored once, and nothing else is visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.bus import topics
from lakerunner.bus.dead_letters import dead_letters
from lakerunner.model.signal import Signal
from lakerunner.store import keys
from tests.pipeline.lake import Lake, identities

#: By signal, the bodies of its raw objects.
Sent = Mapping[Signal, Sequence[bytes]]


def check_rows(lake: Lake, sent: Sent) -> int:
    """Rows sent are the rows in the files of live segments, each as often as it was sent; the ledger agrees."""
    counted = 0
    for signal, bodies in sent.items():
        tables = [lake.read(signal, body).tables[signal.rows.suffix] for body in bodies]
        expected = pa.concat_tables(tables, promote_options="permissive")
        in_files, in_ledger = lake.row_count(signal), lake.ledger_rows(signal)
        assert in_files == expected.num_rows, f"{signal}: {expected.num_rows} sent, {in_files} stored"
        assert in_ledger == in_files, f"{signal}: {in_ledger} rows in the ledger, {in_files} in files"
        assert identities(lake.rows(signal), signal) == identities(expected, signal), f"{signal}: not the same rows"
        counted += in_files
    return counted


def check_index(lake: Lake, sent: Sent) -> None:
    """All is done, nothing is on its way, and the index names no file that is not there."""
    objects = sum(len(bodies) for bodies in sent.values())
    assert lake.states() == {"done": objects}, f"of {objects}: {lake.states()}"
    assert lake.value("SELECT count(*) FROM work_item WHERE state <> 'done'") == 0
    unfounded = "SELECT count(*) FROM segment s LEFT JOIN work_item w ON w.item_id = s.made_by WHERE w.item_id IS NULL"
    assert lake.value(unfounded) == 0, "segments are registered that no item made"
    assert lake.value("SELECT count(*) FROM segment") == len(named_files(lake, sent)[0])
    for signal in sent:
        for segment in lake.segments(signal):
            for table in range(len(signal.tables)):
                # Opened, so that a file that is there but torn is found as well.
                assert pq.read_metadata(lake.file(segment, table)).num_rows > 0
        for topic in (topics.objects(signal), topics.work(signal, "ingest")):
            assert dead_letters(lake.bus, topic.name) == [], f"dead letters of {topic}"


def named_files(lake: Lake, sent: Sent) -> tuple[set[str], set[str]]:
    """The counted files of live segments, and all of their files."""
    named = [keys.segment_keys(segment) for signal in sent for segment in lake.segments(signal)]
    return {files[0] for files in named}, {file for files in named for file in files}


def orphans(lake: Lake, sent: Sent) -> dict[str, int]:
    """Files under db/ that no live segment names -> when they were written, in ns."""
    named = named_files(lake, sent)[1]
    return {meta.key: meta.modified_ns for meta in lake.store.list("db/") if meta.key not in named}
