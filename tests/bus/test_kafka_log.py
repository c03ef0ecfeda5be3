"""librdkafka's lines become structured ones, and an outage does not flood the log."""

from __future__ import annotations

import logging

import pytest
from structlog.testing import capture_logs

from lakerunner.bus.kafka_log import KafkaLog, kafka_logger

FAIL = "FAIL [rdkafka#producer-1] [thrd:db:9092/1]: db:9092/1: Connect to 127.0.0.1:9092 failed: Connection refused"
GETPID = "GETPID [rdkafka#producer-1] [thrd:main]: Failed to acquire idempotence PID from broker: retrying"


@pytest.fixture
def logger() -> logging.Logger:
    made = logging.Logger("kafka")
    made.addHandler(KafkaLog(quiet_s=0.2))
    return made


def test_a_line_is_taken_apart(logger: logging.Logger) -> None:
    with capture_logs() as lines:
        logger.warning(FAIL)
        logger.error("closing without commit: %s", "gone")
    assert lines == [
        {
            "event": "kafka client",
            "log_level": "warning",
            "kind": "FAIL",
            "client": "rdkafka#producer-1",
            "reason": "db:9092/1: Connect to 127.0.0.1:9092 failed: Connection refused",
        },
        {"event": "kafka client", "log_level": "error", "reason": "closing without commit: gone"},
    ]


def test_what_repeats_is_counted(logger: logging.Logger) -> None:
    with capture_logs() as lines:
        for _ in range(50):
            logger.warning(FAIL)
            logger.warning(GETPID)
        assert [line["kind"] for line in lines] == ["FAIL", "GETPID"]
        handler = logger.handlers[0]
        assert isinstance(handler, KafkaLog)
        # As if the time had passed.
        handler._seen = {kind: (last_s - 1, count) for kind, (last_s, count) in handler._seen.items()}
        logger.warning(FAIL)
    assert lines[-1]["repeated"] == 49


def test_lines_go_nowhere_else() -> None:
    logger = kafka_logger()
    assert logger is kafka_logger() and len(logger.handlers) == 1 and not logger.propagate
