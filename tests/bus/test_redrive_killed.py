"""A redrive killed half-way leaves the message sent and the letter in place; a second redrive finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lakerunner.bus.dead_letters import dead_letters, redrive_all
from lakerunner.model.errors import BadInput
from tests.bus.conftest import TOPIC, BusUnderTest, finish, receive

ROOT = Path(__file__).parents[2]
_REDRIVE = """
import os
from lakerunner.bus.dead_letters import redrive_all
from lakerunner.bus.open import open_bus
from lakerunner.index.role import open_database
from lakerunner.runtime.settings.load import load_settings

settings = load_settings(env=os.environ)
redrive_all(open_bus(settings, open_database(settings)))
"""


def test_a_killed_redrive_loses_nothing_and_can_be_done_again(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b")
    with under_test.consumer() as consumer:
        for delivery in receive(consumer, 2):
            consumer.fail(delivery, BadInput("cannot read it"))
        consumer.commit()
    assert len(dead_letters(under_test.bus, TOPIC)) == 2
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
    armed = {"LAKERUNNER_CRASH_POINT": "redrive_after_publish", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", _REDRIVE], env={**inherited, **under_test.env(), **armed}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(dead_letters(under_test.bus, TOPIC)) == 2
    assert len(redrive_all(under_test.bus, TOPIC)) == 2
    assert dead_letters(under_test.bus, TOPIC) == []
    with under_test.consumer() as consumer:
        assert sorted(finish(consumer, 4)) == ["a", "a", "b", "b"]
