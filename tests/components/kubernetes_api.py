"""Kubernetes' own API server over etcd, on loopback: whatever it accepts, a cluster accepts. Nothing runs the objects.

Both are peers: their binaries are found, or the test is skipped. To build them, which takes minutes, run `go build` in
tests/components/kube_apiserver and tests/components/etcd.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.components.peers import peer
from tests.components.process import ComponentFailed, RunningProcess, free_port

_START_S = 90.0


@dataclass(frozen=True)
class Said:
    status: int
    body: Any
    #: What the server holds against an object that it accepts.
    warnings: tuple[str, ...]


class KubernetesApi:
    def __init__(self, port: int, token: str) -> None:
        self._base = f"https://127.0.0.1:{port}"
        self._token = token
        # The server made its certificate itself, a moment ago, and listens on loopback only.
        self._tls = ssl._create_unverified_context()
        self.resource = cache(self._resource)

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Said:
        request = urllib.request.Request(
            self._base + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": kind},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._tls) as answer:
                found, status, headers = answer.read(), answer.status, answer.headers
        except urllib.error.HTTPError as refused:
            found, status, headers = refused.read(), refused.code, refused.headers
        body = json.loads(found) if found.startswith(b"{") else found.decode()
        return Said(status, body, tuple(headers.get_all("Warning") or ()))

    def apply(self, thing: dict[str, Any], namespace: str) -> Said:
        """As `kubectl apply --server-side` does, refusing fields that no version knows."""
        plural, is_namespaced = self.resource(thing["apiVersion"], thing["kind"])
        place = f"namespaces/{namespace}/{plural}" if is_namespaced else plural
        options = "fieldManager=test&force=true&fieldValidation=Strict"
        return self.ask(
            "PATCH",
            f"{_root(thing['apiVersion'])}/{place}/{thing['metadata']['name']}?{options}",
            thing,
            "application/apply-patch+yaml",
        )

    def _resource(self, version: str, kind: str) -> tuple[str, bool]:
        """The name of a kind in paths, and whether its objects are in namespaces."""
        said = self.ask("GET", _root(version))
        assert said.status == 200, f"the server knows no {version}: {said.body}"
        found = [(each["name"], each["namespaced"]) for each in said.body["resources"] if each["kind"] == kind]
        # Besides itself, a kind has sub-resources such as `deployments/status`.
        (place,) = [each for each in found if "/" not in each[0]]
        return place


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


@contextmanager
def running_kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    server, store = peer("kube-apiserver"), peer("etcd")
    client, among, port, token = free_port(), free_port(), free_port(), secrets.token_hex(16)
    key, tokens = folder / "key.pem", folder / "tokens.csv"
    made = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key)]
    subprocess.run(made, check=True, capture_output=True)
    tokens.write_text(f"{token},tester,1,system:masters\n")
    at_store, at_peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{among}"
    etcd = [
        store, "--data-dir", folder / "etcd", "--listen-client-urls", at_store, "--advertise-client-urls", at_store,
        "--listen-peer-urls", at_peers, "--initial-advertise-peer-urls", at_peers,
        "--initial-cluster", f"default={at_peers}", "--log-level", "warn",
    ]  # fmt: skip
    api = [
        server, "--etcd-servers", at_store, "--bind-address", "127.0.0.1", "--secure-port", port,
        "--cert-dir", folder / "certificates", "--token-auth-file", tokens, "--authorization-mode", "RBAC",
        "--service-account-issuer", "https://127.0.0.1", "--service-account-key-file", key,
        "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/24",
    ]  # fmt: skip
    with (
        RunningProcess.start(etcd, log_path=folder / "etcd.log"),
        RunningProcess.start(list(map(str, api)), log_path=folder / "api.log") as process,
    ):
        found, end = KubernetesApi(port, token), time.monotonic() + _START_S
        while not _is_ready(found):
            if process.returncode is not None or time.monotonic() > end:
                raise ComponentFailed(f"the API server did not start\n{process.tail()}")
            time.sleep(0.2)
        yield found


def _is_ready(api: KubernetesApi) -> bool:
    try:
        return api.ask("GET", "/readyz").status == 200
    except OSError:
        return False
