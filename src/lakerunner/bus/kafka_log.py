"""What librdkafka logs, as structured lines, and not more than a few: it repeats itself every second of an outage."""

from __future__ import annotations

import logging
import re
import threading
import time

from lakerunner.runtime.telemetry import log

#: One line of a kind in this time; the others are counted.
_QUIET_S = 60.0
#: `FAIL [rdkafka#producer-1] [thrd:host:9092/1]: host:9092/1: Connect failed`, as the client hands it over.
_LINE = re.compile(r"^(?P<kind>[A-Z_]+) \[(?P<client>[^\]]*)\] (?:\[thrd:[^\]]*\]: )?(?P<text>.*)$", re.DOTALL)


class KafkaLog(logging.Handler):
    """Takes lines of librdkafka and of our own clients."""

    def __init__(self, quiet_s: float = _QUIET_S) -> None:
        super().__init__()
        self._quiet_s = quiet_s
        #: Kind -> when it was last written, and how often it came since.
        self._seen: dict[str, tuple[float, int]] = {}
        self._lock_seen = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        found = _LINE.match(text)
        kind = found["kind"] if found else record.msg
        repeated = self._count(f"{record.levelno} {kind}")
        if repeated is None:
            return
        fields: dict[str, object] = {"reason": found["text"] if found else text}
        if found:
            fields |= {"kind": found["kind"], "client": found["client"]}
        if repeated:
            fields["repeated"] = repeated
        log().log(record.levelno, "kafka client", **fields)

    def _count(self, kind: str) -> int | None:
        """How often the kind came since it was last written; None: it was written a moment ago."""
        now_s = time.monotonic()
        with self._lock_seen:
            last_s, count = self._seen.get(kind, (float("-inf"), 0))
            if now_s - last_s < self._quiet_s:
                self._seen[kind] = last_s, count + 1
                return None
            self._seen[kind] = now_s, 0
            return count


def kafka_logger() -> logging.Logger:
    """The logger that Kafka's clients are given. Its lines go nowhere else."""
    logger = logging.getLogger("lakerunner.kafka")
    if not any(isinstance(each, KafkaLog) for each in logger.handlers):
        logger.addHandler(KafkaLog())
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return logger
