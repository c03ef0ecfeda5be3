"""Receivers of alerts: several, some of them down, over TLS with client certificates, with tokens that are rotated."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakerunner.index.rule_groups import delete_groups
from lakerunner.ruler.notify import Notifier
from lakerunner.runtime.http_post import Poster
from lakerunner.runtime.settings import RulerSettings
from tests.components.certificates import Identities
from tests.components.peers import peer
from tests.components.postgres import PostgresServer
from tests.ruler.lake_of_rules import LakeOfRules, lake_of_rules

_RULE = "  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1, annotations: {summary: it is down}}]\n"


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.make(tmp_path_factory.mktemp("identities"))


@dataclass
class Server:
    """A receiver over TLS that wants a certificate of its callers."""

    address: str
    got: list[tuple[str, str, Any]] = field(default_factory=list)
    status: int = 200


@contextlib.contextmanager
def tls_server(identities: Identities) -> Iterator[Server]:
    receiver = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if receiver.status == 200:
                receiver.got.append((self.path, self.headers.get("Authorization", ""), body))
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A refused handshake is what some of these tests want."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identities.server.cert_path, identities.server.key_path)
    context.load_verify_locations(identities.ours.cert_path)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.address = f"https://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def test_certificates_are_shown_and_checked_and_secrets_come_from_files(identities: Identities, tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("first\n")
    password.write_text("secret\n")
    ours, cert, key = str(identities.ours.cert_path), str(identities.client.cert_path), str(identities.client.key_path)
    with tls_server(identities) as server:
        post = Poster(ours, cert, key, bearer_file=str(token))
        post(server.address, b"{}")
        # Rotated without a restart.
        token.write_text("second\n")
        post(server.address, b"{}")
        Poster(ours, cert, key, basic_user="lake", basic_password_file=str(password))(server.address, b"{}")
        pair = base64.b64encode(b"lake:secret").decode()
        assert [given for _, given, _ in server.got] == ["Bearer first", "Bearer second", f"Basic {pair}"]
        stranger = Poster(ours, str(identities.stranger.cert_path), str(identities.stranger.key_path))
        for refused in (
            Poster(ours),
            Poster(str(identities.theirs.cert_path), cert, key),
            Poster("", cert, key),
            stranger,
        ):
            with pytest.raises(OSError):
                refused(server.address, b"{}")
        with pytest.raises(OSError, match="No such file"):
            Poster(ours, cert, key, bearer_file=str(tmp_path / "absent"))(server.address, b"{}")
        assert len(server.got) == 3


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[LakeOfRules]:
    with lake_of_rules(tmp_path_factory.mktemp("lake"), postgres_server.new_database()) as lake:
        yield lake


def _tls(identities: Identities) -> dict[str, str]:
    return {
        "ca_file": str(identities.ours.cert_path),
        "cert_file": str(identities.client.cert_path),
        "key_file": str(identities.client.key_path),
    }


def _real_posts(lake: LakeOfRules, **settings: Any) -> Any:
    """A ruler that really posts."""
    ruler = lake.ruler(webhooks="", **settings)
    ruler.notifier = Notifier(
        RulerSettings.model_validate({"arrival_s": 0, **settings}),
        lake.database,
        ruler._notifying_groups,
        ruler._org_name,
        ruler._lease_of,
        ruler._holds_leases,
    )
    return ruler


def test_of_several_alertmanagers_each_hears_all_whichever_is_down(lake: LakeOfRules, identities: Identities) -> None:
    lake.clear()
    lake.add("up", [0] * 9, job="a")
    lake.group(_RULE)
    with tls_server(identities) as well, tls_server(identities) as broken:
        broken.status = 503
        ruler = _real_posts(lake, alertmanagers=f"{well.address},{broken.address}", **_tls(identities))
        lake.look(ruler, 2)
        assert [path for path, _, _ in well.got] == ["/api/v2/alerts"] and broken.got == []
        _, second = ruler.notifier.receivers
        assert second.is_resting, "it is not asked again at once"
        broken.status = 200
        second._retry_at_s = 0.0
        lake.look(ruler, 2.1)
        assert len(well.got) == 1, "sent again before it is due"
        assert broken.got[0][2][0]["labels"] == well.got[0][2][0]["labels"]
        assert broken.got[0][2][0]["startsAt"] == well.got[0][2][0]["startsAt"]


def test_a_real_alertmanager_over_tls_shows_alerts_and_their_end(
    lake: LakeOfRules, identities: Identities, tmp_path: Path
) -> None:
    program = peer("alertmanager")
    config, web = tmp_path / "alertmanager.yml", tmp_path / "web.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    web.write_text(
        f"tls_server_config:\n  cert_file: {identities.server.cert_path}\n  key_file: {identities.server.key_path}\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {identities.ours.cert_path}\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            program, f"--config.file={config}", f"--web.config.file={web}", f"--storage.path={tmp_path}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    context = ssl.create_default_context(cafile=str(identities.ours.cert_path))
    context.load_cert_chain(identities.client.cert_path, identities.client.key_path)
    client = httpx.Client(verify=context, base_url=url)

    def shown() -> list[dict[str, Any]]:
        return list(client.get("/api/v2/alerts").json())

    try:
        _until(lambda: client.get("/-/ready").status_code == 200)
        lake.clear()
        lake.add("up", [0, 0, 0], job="a")
        lake.add("up", [0, 0, 0], job="b")
        key = lake.group(_RULE)
        ruler = _real_posts(lake, alertmanagers=url, **_tls(identities))
        lake.look(ruler, 2)
        # The end that the ruler gives is by the test's clock: an hour ago.
        assert shown() == []
        for receiver in ruler.notifier.receivers:
            ruler._certain_until_s = float("inf")
            for group in ruler._groups():
                group.sent = [{} for _ in group.sent]
            assert not ruler.notifier.round(receiver)
        _until(lambda: len(shown()) == 2)
        assert {each["labels"]["job"] for each in shown()} == {"a", "b"}
        assert all(each["annotations"] == {"summary": "it is down"} for each in shown())
        with lake.database.transaction() as tx:
            delete_groups(tx, key.org_id, key.namespace, key.name)
        ruler._groups_s = float("-inf")
        lake.look(ruler, 3)
        for receiver in ruler.notifier.receivers:
            ruler.notifier.round(receiver)
        _until(lambda: shown() == [])
    finally:
        client.close()
        process.terminate()
        process.wait(10)


def _until(holds: Any) -> None:
    end_s = time.monotonic() + 30
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if holds():
                return
        assert time.monotonic() < end_s
        time.sleep(0.05)
