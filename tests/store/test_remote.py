"""A bucket at a cloud provider: pitfalls of obstore."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput, LimitHit, Missing
from lakerunner.store import remote
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

_FORK = """
import os
from lakerunner.model.errors import LakeError
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

config = StoreConfig(url="s3://lake", endpoint="http://127.0.0.1:1", allow_http=True, max_attempts=1,
                     credentials=(("access_key_id", "HOME"), ("secret_access_key", "HOME")))

def code():
    try:
        open_store(config).get("x")
    except LakeError as error:
        return error.code

def in_child():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, code().encode())
        os._exit(0)
    os.wait()
    return os.read(reader, 100).decode()

print(in_child(), code(), in_child())
"""


def test_a_process_forked_too_late_is_told_instead_of_hanging() -> None:
    argv = [sys.executable, "-W", "ignore", "-c", _FORK]
    env = {"PYTHONPATH": ":".join(sys.path), "HOME": "/"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["unavailable", "unavailable", "bug"]


def test_a_create_only_put_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_CREATE_BYTES", 10)
    (tmp_path / "file").write_bytes(b"x" * 11)
    store = open_store(StoreConfig(url="s3://lake", endpoint="http://127.0.0.1:1", allow_http=True))
    with pytest.raises(LimitHit, match="write smaller objects"):
        store.put_file("x", tmp_path / "file")


def test_a_file_that_is_not_there_is_missing(tmp_path: Path, s3_config: Callable[..., StoreConfig]) -> None:
    with pytest.raises(Missing):
        open_store(s3_config("http://127.0.0.1:1")).put_file("x", tmp_path / "nope")


def test_azure_takes_no_backslash() -> None:
    credentials = (("account_name", "LAKERUNNER_TEST_ACCOUNT"), ("account_key", "LAKERUNNER_TEST_KEY"))
    store = open_store(StoreConfig(url="az://lake", credentials=credentials))
    with pytest.raises(BadInput, match="backslash"):
        store.get("a\\b")
