"""`make cluster`: start the deployment of docs/deploy.md here, print what is where, and end it with Ctrl-C.

python -m tests.cluster [--folder DIR] [--hosts 2] [--local] [--partitions N]
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.deployment import Deployment

#: When the user asked for the end.
_interrupted: list[float] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where data and logs go; without it they are deleted at the end")
    parser.add_argument("--hosts", type=int, default=2, help="how many hosts")
    parser.add_argument("--local", action="store_true", help="Spark in each worker process, without a cluster of it")
    parser.add_argument("--partitions", type=int, help="of every topic; Kafka starts sooner with fewer")
    chosen = parser.parse_args()
    bus: dict[str, object] = {"partitions": chosen.partitions} if chosen.partitions else {}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="lakerunner-cluster-", ignore_cleanup_errors=True) as scratch:
        folder = chosen.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        say(f"starting PostgreSQL, Kafka, S3 with SQS, Spark and hosts under {folder} (about a minute)")
        deployed = Deployment(folder, chosen.hosts, not chosen.local, bus=bus)
        with contextlib.suppress(KeyboardInterrupt), deployed as deployment:
            _announce(deployment)
            while True:
                signal.pause()
        say(f"ended {time.monotonic() - _interrupted[0]:.1f} s after you said so")
    return 0


def _interrupt(*_: object) -> None:
    """End everything, also in the middle of the start. Further signals do not interrupt the end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    say("stopping")
    _interrupted.append(time.monotonic())
    raise KeyboardInterrupt


def _announce(deployment: Deployment) -> None:
    servers = deployment.servers
    say(f"\nThe cluster is ready after {deployment.seconds_to_ready:.1f} s. What is where:")
    rows = [
        ("PostgreSQL", servers.postgres.url_at(servers.postgres.port)),
        ("Kafka", servers.kafka.brokers),
        ("S3 and SQS", f"{servers.moto.endpoint}, bucket telemetry, objects under otel-raw/ORG/"),
        ("Spark", servers.spark.master if servers.with_spark else "in each worker process"),
    ]
    rows += [(f"host {each.number}", f"{each.api} (query API); logs in {each.data_dir}") for each in deployment.hosts]
    rows += [(f"key of {org}", secret) for org, secret in deployment.keys.items()]
    rows.append(("settings", str(deployment.settings_file())))
    for name, place in rows:
        say(f"  {name:<14} {place}")
    first, (org, key) = deployment.hosts[0], next(iter(deployment.keys.items()))
    say(f"Try: curl -H 'Authorization: Bearer {key}' {first.api}/loki/api/v1/labels   (as {org}). Ctrl-C ends all.\n")


def say(text: str) -> None:
    # Ctrl-C also ends a `tee` that reads this: the end goes on without it.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
