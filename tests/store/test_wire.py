"""A bucket whose certificate an authority of the house signed."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from tests.components.certificates import issue
from tests.components.moto import CREDENTIALS, REGION, running_moto

SCRIPT = """
import sys
from lakerunner.model.errors import LakeError
from lakerunner.runtime.settings.load import load_settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
values = {"store.url": "s3://lake", "store.endpoint": sys.argv[1], "store.region": sys.argv[2], "store.max_attempts": 1}
store = open_store(StoreConfig.of(load_settings(overrides=values)))
try:
    store.get("absent")
except LakeError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wire")


def test_an_authority_of_the_house_is_trusted_if_it_is_named(folder: Path) -> None:
    authority = issue(folder, "authority")
    own = issue(folder, "bucket", authority, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    with running_moto(folder, own=own) as moto:

        def asked(**more: str) -> str:
            env = {**os.environ, **CREDENTIALS, "PYTHONPATH": os.pathsep.join(sys.path), **more}
            command = [sys.executable, "-c", SCRIPT, moto.endpoint, REGION]
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60).stdout

        assert moto.endpoint.startswith("https://")
        # The bucket answers that it has no such object, or no such bucket.
        assert asked(SSL_CERT_FILE=str(authority.cert_path)).startswith(
            ("Missing", "Unavailable cannot get 'absent': the bucket")
        )
        assert "certificate" in asked()
