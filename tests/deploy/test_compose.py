"""deploy/compose: the specification's own schema accepts it, and it runs every role with settings that exist."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from lakerunner.ops.roles import ROLES
from lakerunner.runtime.settings.load import load_settings
from tests.deploy.connections import CONNECTIONS, DEPLOY, peers_of

DOCUMENT: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
SERVICES: dict[str, Any] = DOCUMENT["services"]


def test_the_specification_accepts_it() -> None:
    found = importlib.util.find_spec("check_jsonschema")
    assert found is not None and found.origin is not None
    schema = Path(found.origin).parent / "builtin_schemas/vendor/compose-spec.json"
    jsonschema.validate(DOCUMENT, json.loads(schema.read_text()))


def test_every_role_runs_and_only_people_reach_the_api() -> None:
    roles = {entry.name for entry in ROLES}
    assert {name for name in SERVICES if SERVICES[name].get("command") == [name]} == roles | {"migrate"}
    assert {name for name in SERVICES if "ports" in SERVICES[name]} == {"query-api"}
    assert SERVICES["query-api"]["ports"] == [
        f"127.0.0.1:{CONNECTIONS['ports']['http']}:{CONNECTIONS['ports']['http']}"
    ]


def test_settings_exist_and_secrets_are_files(tmp_path: Path) -> None:
    for name, service in SERVICES.items():
        if name in ("postgres", "bucket"):
            continue
        env = {key: str(value) for key, value in service["environment"].items()}
        for key, path in env.items():
            if key.endswith("_FILE"):
                secret = Path(path).name
                assert secret in service["secrets"] and secret in DOCUMENT["secrets"]
                (tmp_path / secret).write_text("postgresql://lake@postgres/lrdb")
                env[key] = str(tmp_path / secret)
        settings = load_settings(env=env)
        asks = name in ("query-api", "query-worker") or "query-worker" in (peers_of(name) if name != "migrate" else ())
        assert bool(settings.query.worker_token) is asks
        assert settings.http.port == CONNECTIONS["ports"]["http"]
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
