"""Kafka only: the checkpoint in a commit's metadata, and the translation of errors."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus import kafka
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.kafka_client import to_lake_error
from lakerunner.bus.kafka_consumer import checkpoint_to_text, text_to_checkpoint
from lakerunner.bus.partition_progress import Checkpoint
from lakerunner.model.errors import BadInput, Bug, Conflict, Denied, LakeError, Missing, Unavailable
from lakerunner.runtime.settings import BusSettings
from tests.components.process import free_port

#: Kafka's default for offset.metadata.max.bytes.
MAX_METADATA_BYTES = 4_096
OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, OFFSETS, st.integers(0, 1_000), st.booleans(), st.uuids())
def test_a_mark_survives_the_metadata(a: int, b: int, attempts: int, alone: bool, member: object) -> None:
    checkpoint = Checkpoint(min(a, b), max(a, b), attempts, alone, str(member))
    text = checkpoint_to_text(checkpoint)
    assert text_to_checkpoint(checkpoint.committed, text) == checkpoint
    assert len(text) < MAX_METADATA_BYTES


@pytest.mark.parametrize("text", [None, "", "rubbish", "[]", "7", '{"handed": "x"}', '{"attempts": null}'])
def test_metadata_of_another_tool_is_passed_over(text: str | None) -> None:
    assert text_to_checkpoint(7, text) == Checkpoint(7, 7)
    # No commit at all.
    assert text_to_checkpoint(-1001, text) == Checkpoint(0, 0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, Unavailable),
        (KafkaError._MSG_TIMED_OUT, Unavailable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Unavailable),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Unavailable),
        (KafkaError.UNKNOWN_MEMBER_ID, Conflict),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Missing),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Denied),
        (KafkaError.MSG_SIZE_TOO_LARGE, BadInput),
        (KafkaError.UNSUPPORTED_VERSION, Bug),
    ],
)
def test_an_error_is_told_by_what_can_be_done_about_it(code: int, kind: type[LakeError]) -> None:
    assert type(to_lake_error(KafkaError(code), "try")) is kind


def test_a_broker_that_is_not_there_is_unavailable() -> None:
    bus = KafkaBus(BusSettings(kind="kafka", brokers=f"127.0.0.1:{free_port()}"))
    with pytest.raises(Unavailable, match="reach Kafka"):
        bus.ping()
    bus.close()


def test_a_client_that_does_not_find_kafka_again_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_PING_S", 0.05)
    monkeypatch.setattr(kafka, "_REPLACE_S", 0.2)
    bus = KafkaBus(BusSettings(kind="kafka", brokers=f"127.0.0.1:{free_port()}"))
    first = bus._admin
    for pause_s, is_first in ((0.0, True), (0.0, True), (0.3, False)):
        time.sleep(pause_s)
        with pytest.raises(Unavailable):
            bus.ping()
        assert (bus._admin is first) is is_first
    bus.close()


def test_a_question_that_the_client_forgot_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_ADMIN_S", 0.05)
    monkeypatch.setattr(kafka, "_FORGOTTEN_S", 0.05)
    with pytest.raises(Unavailable, match="no answer within"):
        kafka._answer(Future())
