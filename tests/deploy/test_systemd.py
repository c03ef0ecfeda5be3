"""deploy/systemd: systemd itself accepts the units, and they start commands that exist."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from lakerunner.ops.roles import ROLES
from lakerunner.runtime.settings.load import load_settings
from tests.components.missing import missing
from tests.deploy.connections import DEPLOY

UNITS = DEPLOY / "systemd"


def read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((UNITS / name).read_text())
    return unit


@pytest.mark.parametrize(("name", "instance"), [("lakerunner.service", ""), ("lakerunner@.service", "ingest")])
def test_systemd_accepts_the_unit(tmp_path: Path, name: str, instance: str) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("cannot try the units: there is no systemd-analyze")
    # It refuses programs that do not exist here.
    text = (UNITS / name).read_text().replace("/opt/lakerunner/bin/lakerunner", "/bin/true")
    unit = tmp_path / name.replace("@.", f"@{instance}.")
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 and str(unit) not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "commands"), [("lakerunner.service", {"serve"}), ("lakerunner@.service", {each.name for each in ROLES})]
)
def test_units_start_what_exists_with_settings_that_exist(name: str, commands: set[str]) -> None:
    service = read(name)["Service"]
    program, command = service["ExecStart"].split()
    assert program.endswith("/lakerunner")
    assert (command == "%i" and len(commands) > 1) or command in commands
    env = dict(each.split("=", 1) for each in service["Environment"].split())
    del env["LAKERUNNER_CONFIG"]
    assert str(load_settings(env=env).data.dir) == f"/var/lib/{service['StateDirectory']}"
    assert service["Restart"] == "always" and service["ProtectSystem"] == "strict"
