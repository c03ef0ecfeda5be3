"""A workload is the same for the same seed, and numbers its rows without a gap."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.read import read_object
from lakerunner.model.signals import signal_named
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR
from lakerunner.ops.simulate.workload import Workload, parts_of

START_NS = 20_000 * NS_PER_DAY


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 50), st.integers(1, 3))
def test_every_object_is_sent_once_in_its_hour(days: int, orgs: int, objects: int, rows: int) -> None:
    workload = Workload(days, orgs, objects, rows, ("logs", "metrics"), 1, START_NS)
    numbers = defaultdict(list)
    keys = set()
    for hour in range(days * 24):
        for part in parts_of(workload, hour):
            assert hour - 1 <= (part.start_ns - START_NS) // NS_PER_HOUR <= hour
            keys.add(part.key)
            numbers[part.org_id, part.signal] += range(part.first_row, part.first_row + part.rows)
    assert len(keys) == workload.objects
    assert all(sorted(each) == list(range(days * objects * rows)) for each in numbers.values())
    assert len(numbers) == 2 * orgs


def test_the_bytes_hold_the_rows_and_depend_on_the_seed_alone() -> None:
    def sent(seed: int) -> dict[str, bytes]:
        workload = Workload(1, 1, 24, 7, ("logs", "metrics", "traces"), seed, START_NS)
        return {part.key: part.body() for hour in range(24) for part in parts_of(workload, hour)}

    first = sent(5)
    assert first == sent(5) and first.keys() != sent(6).keys()
    for key, body in list(first.items())[:3]:
        signal = signal_named(key.rpartition("/")[2].partition("_")[0])
        table = read_object(body, signal).tables[""]
        assert table.num_rows == 7
        times = table.column(signal.time_column).cast("int64").to_numpy() * signal.time_unit_ns
        assert times.min() >= START_NS and times.max() < START_NS + NS_PER_HOUR
