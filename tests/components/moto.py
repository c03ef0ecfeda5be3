"""A local S3 server: moto as a process."""

from __future__ import annotations

import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.components.certificates import Identity
from tests.components.process import RunningProcess, free_port

#: moto accepts any credentials. The keys are the variables that S3 clients read.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
REGION = "us-east-1"


@dataclass(frozen=True)
class Moto:
    host: str
    port: int
    process: RunningProcess
    scheme: str = "http"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def create_bucket(self, name: str) -> None:
        # moto checks no signature, so a plain PUT creates a bucket without an SDK.
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            pass


def create_bucket_with_queue(s3: Any, sqs: Any, name: str, prefix: str = "") -> str:
    """Create a bucket that notifies a queue of new objects, and return the queue's URL. Takes boto3 clients."""
    s3.create_bucket(Bucket=name)
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rule: dict[str, Any] = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    if prefix:
        rule["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}}
    s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={"QueueConfigurations": [rule]})
    return url


@contextmanager
def running_moto(folder: Path, port: int | None = None, own: Identity | None = None) -> Iterator[Moto]:
    """Run a server that keeps objects in memory. Pass a port to start one where another was, an identity for TLS."""
    port = port or free_port()
    # Look beside the interpreter first: the tests may run without the virtual environment on PATH.
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent)) or "moto_server"
    argv = [program, "-H", "127.0.0.1", "-p", str(port)]
    if own is not None:
        argv += ["-c", str(own.cert_path), "-k", str(own.key_path)]
    with RunningProcess.start(argv, log_path=folder / f"moto-{port}.log", env=CREDENTIALS) as process:
        process.wait_for_port("127.0.0.1", port, 30)
        yield Moto("127.0.0.1", port, process, "http" if own is None else "https")
