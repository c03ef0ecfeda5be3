"""What the chart's NetworkPolicies let through."""

from __future__ import annotations

from typing import Any

from tests.deploy.chart import Object, of_kind


def allows(objects: list[Object], caller: str, callee: str, port: int) -> bool:
    """Whether a connection between two roles is let through: out of one pod, and into the other."""
    policies = of_kind(objects, "NetworkPolicy")
    return _open_to_role(policies[caller]["spec"]["egress"], "to", callee, port) and _open_to_role(
        policies[callee]["spec"]["ingress"], "from", caller, port
    )


def allows_out(objects: list[Object], caller: str, place: list[Any], port: int) -> bool:
    """Whether a role may call that port of a peer outside of the release."""
    return _open_to_place(of_kind(objects, "NetworkPolicy")[caller]["spec"]["egress"], "to", place, port)


def allows_in(objects: list[Object], callee: str, place: list[Any], port: int) -> bool:
    """Whether a peer outside of the release may call that port of a role."""
    return _open_to_place(of_kind(objects, "NetworkPolicy")[callee]["spec"]["ingress"], "from", place, port)


def _open_to_role(rules: list[Object], key: str, role: str, port: int) -> bool:
    return any(
        _has_port(rule, port)
        and any(
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == role
            for peer in rule.get(key, ())
            if set(peer) == {"podSelector"}
        )
        for rule in rules or ()
    )


def _open_to_place(rules: list[Object], key: str, place: list[Any], port: int) -> bool:
    return any(_has_port(rule, port) and rule.get(key, []) == place for rule in rules or ())


def _has_port(rule: Object, port: int) -> bool:
    return any(each["port"] <= port <= each.get("endPort", each["port"]) for each in rule["ports"])
