"""A real API server of Kubernetes accepts every object of the chart, and holds nothing against one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.components.go_module import go_module
from tests.components.kubernetes_api import KubernetesApi, running_kubernetes_api
from tests.deploy import operator_schemas
from tests.deploy.chart import VALUES, render
from tests.faults.clean_roles import until

pytestmark = pytest.mark.timeout(450)
#: The server then says what a pod has that the strictest of Kubernetes' standards forbids.
_STANDARD = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as api:
        for module, path in operator_schemas.DEFINITIONS.values():
            definition = yaml.load((go_module(*module) / path).read_text(), yaml.CSafeLoader)
            assert api.apply(definition, "").status == 201
            version = f"{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}"
            until(lambda version=version: api.ask("GET", f"/apis/{version}").status == 200, f"{version} is served", 60)
        yield api


def fresh_namespace(api: KubernetesApi, name: str) -> str:
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": _STANDARD}}
    assert api.apply(made, "").status == 201
    return name


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_every_object_is_accepted_without_a_warning(values: Path, api: KubernetesApi) -> None:
    namespace = fresh_namespace(api, values.stem)
    for each in render(values):
        thing = {**each, "metadata": {**each["metadata"], "namespace": namespace}}
        if not api.resource(each["apiVersion"], each["kind"])[1]:
            thing["metadata"].pop("namespace")
        said = api.apply(thing, namespace)
        name = f"{each['kind']} {each['metadata']['name']}"
        assert said.status in (200, 201), f"{name}: {said.body['message']}"
        assert said.warnings == (), name


def test_the_server_does_refuse_and_warn(api: KubernetesApi) -> None:
    namespace = fresh_namespace(api, "refusals")
    (thing,) = [each for each in render(VALUES[0]) if each["kind"] == "StatefulSet"][:1]
    thing = {**thing, "metadata": {"name": "a", "namespace": namespace}}

    def changed(**spec: Any) -> dict[str, Any]:
        return {**thing, "spec": {**thing["spec"], **spec}}

    assert "field not declared in schema" in api.apply(changed(surprise=1), namespace).body["message"]
    assert api.apply(changed(replicas=-1), namespace).status == 422
    template = thing["spec"]["template"]
    for_all = {**template, "spec": {**template["spec"], "hostNetwork": True}}
    said = api.apply(changed(template=for_all), namespace)
    assert said.status == 201 and "restricted" in said.warnings[0]
