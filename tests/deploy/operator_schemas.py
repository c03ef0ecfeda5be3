"""Schemas of the kinds that operators add to Kubernetes, as Prometheus' operator and KEDA publish them."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import yaml

from tests.components.go_module import go_module

_PROMETHEUS = (
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)
_KEDA = ("github.com/kedacore/keda/v2", "v2.21.0", "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=")
#: Kind -> module, and where the definition lies in it.
DEFINITIONS = {
    "ServiceMonitor": (_PROMETHEUS, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    "PrometheusRule": (_PROMETHEUS, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
    "ScaledObject": (_KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
}


def require_valid(thing: dict[str, Any]) -> None:
    """Raise if the object is not as its definition has it, or has a field that the definition does not know."""
    _validator(thing["kind"], thing["apiVersion"]).validate(thing)


@cache
def _validator(kind: str, version: str) -> Any:
    module, path = DEFINITIONS[kind]
    definition = yaml.load((go_module(*module) / path).read_text(), yaml.CSafeLoader)["spec"]
    (schema,) = [
        each["schema"]["openAPIV3Schema"]
        for each in definition["versions"]
        if f"{definition['group']}/{each['name']}" == version and each["served"]
    ]
    return jsonschema.Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name. The API server drops such fields silently."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each) for name, each in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if named and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    return closed
