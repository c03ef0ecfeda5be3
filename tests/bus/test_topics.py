"""The topics follow from the signals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, WindowsChanged, WorkReady
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import LOGS, METRICS


def test_the_names_are_those_that_users_know() -> None:
    assert {topic.name for topic in topics.LIVE_TOPICS} == {
        *(f"objstore.ingest.{signal}" for signal in ("logs", "metrics", "traces")),
        *(f"segments.{signal}.ingest" for signal in ("logs", "metrics", "traces")),
        *(f"boxer.{signal}.compact" for signal in ("logs", "metrics", "traces")),
        *(f"segments.{signal}.compact" for signal in ("logs", "metrics", "traces")),
        *(f"boxer.{signal}.delete" for signal in ("logs", "metrics", "traces")),
        *(f"segments.{signal}.delete" for signal in ("logs", "metrics", "traces")),
        *(f"boxer.{signal}.backfill" for signal in ("logs", "metrics", "traces")),
        *(f"segments.{signal}.backfill" for signal in ("logs", "metrics", "traces")),
        "boxer.metrics.rollup",
        "segments.metrics.rollup",
    }


def test_every_live_topic_has_dead_letters_and_those_have_none() -> None:
    dead = {topic.name for topic in topics.TOPICS if topic.is_dead}
    assert dead == {f"dead.{topic.name}" for topic in topics.LIVE_TOPICS}


def test_a_topic_says_what_it_carries() -> None:
    assert (
        topics.topic_named("objstore.ingest.logs")
        == topics.objects(LOGS)
        == topics.Topic("objstore.ingest.logs", ObjectSeen)
    )
    assert topics.topic_named("boxer.metrics.rollup").message is WindowsChanged
    assert topics.work(METRICS, "rollup").message is WorkReady


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="rollup"):
        topics.work(LOGS, "rollup")
    with pytest.raises(BadInput, match="raw objects"):
        topics.made(LOGS, "ingest")
    with pytest.raises(BadInput, match=r"segments\.profiles"):
        topics.topic_named("segments.profiles")


@given(st.text(), st.integers(1, 1024))
def test_a_key_has_one_partition(key: str, partitions: int) -> None:
    assert 0 <= topics.partition_of(key, partitions) < partitions
