"""Renders the Helm chart with helm's own packages, and reads the objects that they make."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.components.helm import helm
from tests.deploy.connections import DEPLOY

CHART = DEPLOY / "helm/lakerunner"
VALUES = sorted((DEPLOY / "helm/values").glob("*.yaml"))
RELEASE, NAMESPACE = "lake", "telemetry"
FULL = f"{RELEASE}-lakerunner"
Object = dict[str, Any]


def run_helm(*arguments: str | Path, program: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(program or helm()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def render(*values: Path | str, program: Path | None = None) -> list[Object]:
    """The objects of a release with these files of values, and settings as --set takes them."""
    given: list[str] = []
    for each in values:
        given += ["-f", str(each)] if isinstance(each, Path) else ["--set", each]
    place = ["--namespace", NAMESPACE, "--kube-version", "1.33"]
    done = run_helm("template", RELEASE, CHART, *place, *given, program=program)
    if done.returncode:
        raise RefusedValues(done.stderr)
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


class RefusedValues(Exception):
    """helm did not render the chart."""


def of_kind(objects: list[Object], *kinds: str) -> dict[str, Object]:
    """Objects of these kinds by the role that they belong to."""
    return {
        each["metadata"]["labels"].get("app.kubernetes.io/component", ""): each
        for each in objects
        if each["kind"] in kinds
    }


def containers(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Role, pod and container of everything that runs."""
    for role, each in of_kind(objects, "Deployment", "StatefulSet", "Job").items():
        pod = each["spec"]["template"]["spec"]
        for container in pod["containers"]:
            yield role, pod, container
