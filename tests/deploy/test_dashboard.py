"""The dashboard for Grafana: every query parses, and reads metrics and labels that the roles export."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

import lakerunner
from lakerunner.ops.roles import CANARY_ROLES, ROLES
from lakerunner.query.promql.parser import parse
from tests.deploy.connections import DEPLOY

BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/lakerunner.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
#: What Prometheus adds to every series.
ADDED = {"job", "instance", "le"}
_ENDINGS = re.compile(r"_(total|bucket|sum|count)$")


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Labels by name of every metric of ours, from the registries of all roles."""
    for module in pkgutil.walk_packages(lakerunner.__path__, "lakerunner."):
        if module.name.endswith("metrics"):
            importlib.import_module(module.name)
    registries: set[CollectorRegistry] = {REGISTRY}
    for entry in (*ROLES, *CANARY_ROLES):
        registries.update(entry.load().registries)
    found = {}
    for registry in registries:
        for collector in registry._collector_to_names:
            name = getattr(collector, "_name", "")
            if name.startswith("lakerunner_"):
                found[name] = set(collector._labelnames)  # type: ignore[attr-defined]
    return found


def queries() -> list[tuple[str, str, str]]:
    return [(panel["title"], each["expr"], each["legendFormat"]) for panel in PANELS for each in panel["targets"]]


@pytest.mark.parametrize(("title", "query", "legend"), queries(), ids=lambda value: str(value)[:40])
def test_a_query_reads_what_exists(title: str, query: str, legend: str, exported: dict[str, set[str]]) -> None:
    text = query.replace("$__rate_interval", "1m").replace("$job", ".+")
    parse(text)
    names = set(re.findall(r"\blakerunner_\w+", text))
    assert len(names) == 1
    name = names.pop()
    known = exported.get(name) or exported.get(_ENDINGS.sub("", name))
    assert known is not None or name in exported or _ENDINGS.sub("", name) in exported, f"nobody exports {name}"
    labels = (known or set()) | ADDED
    used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", text))
    for group in re.findall(r"\bby \(([^)]*)\)", text):
        used |= {label.strip() for label in group.split(",")}
    assert used <= labels, f"{title}: {name} has no {used - labels}"
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    kept = re.search(r"^\w*\(?.*?\bby \(([^)]*)\)", text)
    assert shown <= ({each.strip() for each in kept[1].split(",")} if kept else set())


def test_what_operators_ask_first_is_shown(exported: dict[str, set[str]]) -> None:
    shown = set(re.findall(r"\blakerunner_\w+", json.dumps(PANELS)))
    wanted = {
        "lakerunner_bus_lag",
        "lakerunner_stage_oldest_item_seconds",
        "lakerunner_raw_objects",
        "lakerunner_dead_letters",
        "lakerunner_freshness_seconds",
        "lakerunner_leader",
        "lakerunner_role_ready",
    }
    assert wanted <= shown and wanted <= set(exported)


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells and at["x"] + at["w"] <= 24
        cells |= own
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
