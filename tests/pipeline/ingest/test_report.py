import uuid

from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_S, TimeRange
from lakerunner.pipeline.ingest.report import skewed_rows

NOW_NS = 1_767_225_600 * NS_PER_S


def at(start_ns: int) -> Segment:
    return Segment(fresh_id(), uuid.uuid4(), "edge", "logs", TimeRange(start_ns, start_ns + NS_PER_S), 7, 1)


def test_1970_and_2100_are_skewed_and_last_week_is_not() -> None:
    assert skewed_rows([at(0)], NOW_NS) == 7
    assert skewed_rows([at(4_102_444_800 * NS_PER_S), at(0)], NOW_NS) == 14
    assert skewed_rows([at(NOW_NS), at(NOW_NS - 7 * NS_PER_DAY), at(NOW_NS + 60 * NS_PER_S)], NOW_NS) == 0
