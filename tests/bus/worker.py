"""A process of its own that consumes, so that a test can kill it: `worker.py GROUP TOPIC MODE LOG`.

Handled payloads are appended to the log. MODE `hold` takes one message and never answers; `deadly` dies by SIGKILL
over a payload that starts with "kill"; `relay` relays the outbox instead.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from lakerunner.bus.contract import Delivery
from lakerunner.bus.open import open_bus
from lakerunner.bus.relay import relay_once
from lakerunner.index.database import Database
from lakerunner.runtime.settings.load import load_settings


def main(group: str, topic: str, mode: str, log_path: Path) -> None:
    settings = load_settings(env=os.environ)
    database = Database(settings.index.url)
    bus = open_bus(settings, database)

    def note(line: str) -> None:
        with log_path.open("a") as log:
            log.write(line + "\n")

    def handle(delivery: Delivery) -> None:
        payload = delivery.payload.decode()
        if payload.startswith("kill"):
            note(f"dies over {payload}")
            os.kill(os.getpid(), signal.SIGKILL)
        note(payload)

    if mode == "relay":
        while relay_once(database, bus, 10):
            note("relayed")
        return
    consumer = bus.consumer(group, [topic])
    if mode == "deadly":
        while True:
            for delivery in consumer.poll(64, 0.1):
                handle(delivery)
                consumer.done(delivery)
            consumer.commit()
    while not (taken := consumer.poll(1, 0.5)):
        pass
    note(taken[0].payload.decode())
    time.sleep(3_600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
