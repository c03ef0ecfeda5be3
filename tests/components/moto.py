"""S3 on this machine: moto's server as a process."""

from __future__ import annotations

import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.components.process import RunningProcess, free_port

#: What moto takes: any. The names are those of the variables that S3 clients read.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
REGION = "us-east-1"


@dataclass(frozen=True)
class Moto:
    host: str
    port: int
    process: RunningProcess

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def create_bucket(self, name: str) -> None:
        # moto checks no signature, so a plain PUT makes a bucket without an SDK.
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            pass


def create_bucket_with_queue(s3: Any, sqs: Any, name: str, prefix: str = "") -> str:
    """A bucket that tells a queue of its new objects, as S3 does; the queue's address. Takes boto3's clients."""
    s3.create_bucket(Bucket=name)
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rule: dict[str, Any] = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}
    if prefix:
        rule["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}}
    s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={"QueueConfigurations": [rule]})
    return url


@contextmanager
def running_moto(folder: Path, port: int | None = None) -> Iterator[Moto]:
    """A server whose objects live as long as it does. A port can be given to start one where another was."""
    port = port or free_port()
    # Beside the interpreter first: the tests may run without the environment being on PATH.
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent)) or "moto_server"
    argv = [program, "-H", "127.0.0.1", "-p", str(port)]
    with RunningProcess.start(argv, log_path=folder / f"moto-{port}.log", env=CREDENTIALS) as process:
        process.wait_for_port("127.0.0.1", port, 30)
        yield Moto("127.0.0.1", port, process)
