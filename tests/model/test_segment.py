import uuid

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_HOUR, NS_PER_S, TimeRange


def test_its_place_is_that_of_its_first_row() -> None:
    start_ns = 1_700_000_000 * NS_PER_S
    segment = Segment(fresh_id(), uuid.uuid4(), "collector", "logs", TimeRange(start_ns, start_ns + NS_PER_HOUR), 1, 1)
    assert (segment.dateint, segment.hour) == (20231114, 22)


def test_an_empty_segment_cannot_be() -> None:
    with pytest.raises(BadInput, match="no rows"):
        Segment(fresh_id(), uuid.uuid4(), "c", "logs", TimeRange(0, 1), 0, 1)


def test_pruning_survives_json() -> None:
    pruning = Pruning(values={"service_name": ("a", "b")}, bounds={"duration_ns": (1, 9)})
    assert Pruning.from_json(pruning.to_json()) == pruning
    assert Pruning.from_json({}) == Pruning()
