"""Kafka over TLS with a user and a password: a real broker, the right and the wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.bus.kafka import KafkaBus
from lakerunner.model.errors import LakeError
from lakerunner.runtime.settings import BusSettings
from tests.components.certificates import issue
from tests.components.kafka import PASSWORD, USER, KafkaBroker


def secured(broker: KafkaBroker, password: str, authority: Path) -> BusSettings:
    options = (
        f"security.protocol=SASL_SSL sasl.mechanism=PLAIN sasl.username={USER} sasl.password={password}"
        f" ssl.ca.location={authority}"
    )
    return BusSettings(kind="kafka", brokers=broker.secure_brokers, kafka_options=options)


def test_the_bus_speaks_tls_and_logs_in(kafka_broker: KafkaBroker) -> None:
    bus = KafkaBus(secured(kafka_broker, PASSWORD, kafka_broker.authority_path))
    try:
        bus.ping()
    finally:
        bus.close()


def test_a_wrong_password_and_a_wrong_authority_are_refused(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    stranger = issue(tmp_path, "stranger").cert_path
    for settings in (
        secured(kafka_broker, "wrong", kafka_broker.authority_path),
        secured(kafka_broker, PASSWORD, stranger),
    ):
        bus = KafkaBus(settings)
        try:
            with pytest.raises(LakeError) as refused:
                bus.ping()
        finally:
            bus.close()
        assert PASSWORD not in str(refused.value)
