"""The shipped rules: expressions parse, their metrics exist in the code, and every alert has a runbook heading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakerunner.query.promql.parser import parse
from lakerunner.serve.admin import conditions
from tests.components.peers import peer

ROOT = Path(__file__).parents[3]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()


def exported() -> set[str]:
    """The names of samples that the code may export, found where metrics are made."""
    names: set[str] = set()
    for path in (ROOT / "src/lakerunner").rglob("*.py"):
        text = path.read_text()
        for kind, name in re.findall(r'\b(Counter|Gauge|Histogram)\(\s*"(lakerunner_\w+)"', text):
            names |= {"Counter": {f"{name}_total"}, "Gauge": {name}}.get(
                kind, {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
            )
        if path.name == "gauges.py":
            names |= {f"lakerunner_{name}" for name in re.findall(r'_gauge\(\s*"(\w+)"', text)}
    return names


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_can_be_evaluated_and_is_explained(rule: dict[str, Any]) -> None:
    parse(rule["expr"])
    names = set(re.findall(r"\blakerunner_\w+", rule["expr"]))
    assert names and names <= exported()
    assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"].endswith(".")
    section = re.search(rf"^## {rule['alert']}$(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert section, "docs/runbook.md has no heading for it"
    assert all(f"**{part}.**" in section[1] for part in ("Meaning", "Check", "Fix"))


def test_the_monitor_knows_the_same_alerts() -> None:
    own = set(re.findall(r'"(Lakerunner\w+)"', Path(conditions.__file__).read_text()))
    shipped = {rule["alert"] for rule in RULES}
    assert own <= shipped
    assert set(re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)) == shipped


def test_promtool_accepts_the_rules_and_their_unit_tests(tmp_path: Path) -> None:
    promtool, shipped = peer("promtool"), ROOT / "deploy/prometheus/rules.yaml"
    tests = tmp_path / "rules_test.yaml"
    tests.write_text(Path(__file__).with_name("rules_test.yaml").read_text().replace("RULES]", f"{shipped}]"))
    for arguments in (["check", "rules", "--lint-fatal", str(shipped)], ["test", "rules", str(tests)]):
        done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
