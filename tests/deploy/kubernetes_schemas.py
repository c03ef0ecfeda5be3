"""Kubernetes' own schemas, from the wheel kubernetes-validate, read once: they are megabytes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from referencing import Registry, Resource

_SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def require_valid(thing: dict[str, Any], version: str) -> None:
    """Raise if the object is not as the schemas of that version have it, or has a field that they do not know."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", thing["apiVersion"])
    _validator(f"{thing['kind'].lower()}-{group}.json", version).validate(thing)


@cache
def _validator(name: str, version: str) -> Any:
    schema = _read(name, version)
    return jsonschema.Draft202012Validator(schema, registry=_definitions(version))


@cache
def _definitions(version: str) -> Any:
    definitions = Resource.from_contents(_read("_definitions.json", version))
    return (definitions @ Registry()).crawl()


def _read(name: str, version: str) -> Any:
    return json.loads((_SCHEMAS / f"v{version}.0-local-strict" / name).read_text())
