"""A broker needs a small part of its heap at first: it is started again after it has had many topics."""

from __future__ import annotations

from pathlib import Path

from tests.components.kafka import KafkaBroker, kafka_jars


def test_a_broker_starts_in_less_than_half_of_its_heap(tmp_path: Path) -> None:
    broker = KafkaBroker(kafka_jars(), tmp_path, heap_mb=112)
    try:
        broker.start()
    finally:
        broker.stop()
