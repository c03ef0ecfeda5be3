"""What all Kafka clients share: the base configuration, the logger, and errors translated to LakeErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lakerunner.bus.kafka_log import kafka_logger
from lakerunner.model.errors import BadInput, Bug, Conflict, Denied, LakeError, Missing, Unavailable
from lakerunner.runtime.options import parse_options
from lakerunner.runtime.settings import BusSettings

#: Receives librdkafka's own log. An unreachable broker is logged here and does not appear in our errors.
logger = kafka_logger()

_LOST = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
}
_TRANSIENT = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._QUEUE_FULL,
    KafkaError._WAIT_COORD,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._RESOLVE,
    KafkaError._STATE,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_TOO_BIG = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG}


def base_config(settings: BusSettings) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.brokers,
        "client.id": "lakerunner",
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
        "logger": logger,
        **parse_options(settings.kafka_options, "bus.kafka_options"),
    }


def to_lake_error(error: KafkaError, doing: str) -> LakeError:
    """Translate an error of Kafka to a LakeError, whose class decides about retries."""
    code, text = error.code(), f"cannot {doing}: {error.str()}"
    if code in _LOST:
        return Conflict(text)
    if code in _NO_TOPIC:
        return Missing(text, hint="roles create the topics when they start; is bus.prefix the same everywhere?")
    if code in _TRANSIENT or error.retriable():
        return Unavailable(text, hint="is Kafka running at bus.brokers?")
    if code in _REFUSED:
        return Denied(text, hint="check the client's credentials and its permissions on the broker")
    if code in _TOO_BIG:
        return BadInput(text, hint="raise message.max.bytes on the broker")
    return Bug(text)


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Raise Kafka's errors in the block as LakeErrors. `doing` completes "cannot ..."."""
    try:
        yield
    except KafkaException as error:
        raise to_lake_error(error.args[0], doing) from error
