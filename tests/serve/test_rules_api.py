"""Rules and alerts over HTTP: Prometheus' shapes, Loki's ruler API, and orgs that see nothing of each other."""

from __future__ import annotations

import yaml

from lakerunner.index.alert_states import RuleEvaluation, commit_evaluation
from lakerunner.index.rule_groups import GroupKey, put_group
from lakerunner.model.labels import LabelSet
from lakerunner.rules.evaluation.alerting import ActiveAlert, State
from lakerunner.rules.evaluation.rule import RuleState
from lakerunner.rules.evaluation.stored_state import rule_key, to_json
from lakerunner.rules.file import read_rules
from lakerunner.rules.render import evaluated_rules
from tests.serve.served import Serve, TwoOrgs

_GROUP = """\
name: checkout
interval: 30s
rules:
  - record: lines:rate
    expr: sum(rate({service_name="cart"}[5m]))
  - alert: Loud
    expr: sum(rate({service_name="cart"}[5m])) > 5
    for: 5m
    labels: {severity: page}
    annotations: {summary: 'at {{ $value }}'}
"""
_RULES, _PROMETHEUS = "/loki/api/v1/rules", "/api/v1/rules"


def _bearer(two_orgs: TwoOrgs, who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {two_orgs.secrets[who]}"}


def test_groups_are_stored_shown_and_deleted_by_their_own_org_alone(serve: Serve, two_orgs: TwoOrgs) -> None:
    client = serve(two_orgs.auth).client
    admin, reader, other = (_bearer(two_orgs, who) for who in ("our_admin", "ours", "theirs"))
    assert client.get(_RULES, headers=reader).status_code == 404
    for headers in ({}, reader, other, {**admin, "X-Scope-OrgID": "theirs"}):
        assert client.post(f"{_RULES}/shop", content=_GROUP, headers=headers).status_code == 401
    stored = client.post(f"{_RULES}/shop", content=_GROUP, headers=admin)
    assert (stored.status_code, stored.json()["status"]) == (202, "success")
    shown = yaml.safe_load(client.get(_RULES, headers=reader).text)
    assert shown == {"shop": [yaml.safe_load(_GROUP)]}
    assert yaml.safe_load(client.get("/api/prom/rules/shop/checkout", headers=reader).text) == shown["shop"][0]
    # The other org sees, asks for and deletes nothing of it.
    root = {**_bearer(two_orgs, "admin"), "X-Scope-OrgID": "theirs"}
    for path in (_RULES, f"{_RULES}/shop", f"{_RULES}/shop/checkout"):
        assert client.get(path, headers=other).status_code == 404
    for path in (_PROMETHEUS, "/prometheus/api/v1/rules"):
        assert client.get(path, headers=other).json()["data"] == {"groups": []}
    for path in (f"{_RULES}/shop", f"{_RULES}/shop/checkout"):
        assert client.delete(path, headers=root).status_code == 404
        assert client.delete(path, headers=reader).status_code == 401
    assert client.delete(f"{_RULES}/shop/checkout", headers=admin).status_code == 202
    assert client.get(_RULES, headers=reader).status_code == 404


def test_state_is_shown_as_prometheus_shows_it(serve: Serve, two_orgs: TwoOrgs) -> None:
    client = serve(two_orgs.auth).client
    admin, reader = _bearer(two_orgs, "our_admin"), _bearer(two_orgs, "ours")
    assert client.post(f"{_RULES}/shop", content=_GROUP, headers=admin).status_code == 202
    assert client.post(f"{_RULES}/shop", content=_GROUP.replace("checkout", "zzz"), headers=admin).status_code == 202
    (fresh, _) = client.get(_PROMETHEUS, headers=reader).json()["data"]["groups"]
    assert (fresh["lastEvaluation"], fresh["rules"][1]["state"]) == ("0001-01-01T00:00:00Z", "unknown")
    (group,) = read_rules("groups: [{language: logql, " + str(yaml.safe_load(_GROUP))[1:] + "]")
    record, alert = evaluated_rules(group)
    labels = LabelSet.of({"alertname": "Loud", "severity": "page"})
    active = ActiveAlert(labels, LabelSet.of({"summary": "at 7"}), 7.5, State.FIRING, 1_000, 2_000)
    states = [
        (0, rule_key(record), to_json(RuleState(health="err", last_error="it broke", evaluated_at_ms=61_500))),
        (1, rule_key(alert), to_json(RuleState((active,), health="ok", evaluated_at_ms=61_500))),
    ]
    key = GroupKey(two_orgs.ours, "shop", "checkout")
    evaluation = RuleEvaluation(key, 1, None, None, 0, 61_500, True, states)
    assert commit_evaluation(two_orgs.lake.database, evaluation)
    (shown, _) = client.get(_PROMETHEUS, headers=reader).json()["data"]["groups"]
    assert (shown["name"], shown["file"], shown["interval"]) == ("checkout", "shop", 30.0)
    assert shown["lastEvaluation"] == "1970-01-01T00:01:01.500Z"
    broken, loud = shown["rules"]
    assert (broken["type"], broken["health"], broken["lastError"]) == ("recording", "err", "it broke")
    assert (loud["type"], loud["state"], loud["duration"]) == ("alerting", "firing", 300.0)
    assert loud["alerts"] == [
        {
            "labels": {"alertname": "Loud", "severity": "page"},
            "annotations": {"summary": "at 7"},
            "state": "firing",
            "activeAt": "1970-01-01T00:00:01.000Z",
            "value": "7.5e+00",
        }
    ]
    assert client.get("/api/v1/alerts", headers=reader).json()["data"] == {"alerts": loud["alerts"]}
    assert client.get("/prometheus/api/v1/alerts", headers=reader).json()["data"]["alerts"] == loud["alerts"]

    def names(**params: str) -> list[str]:
        data = client.get(_PROMETHEUS, params=params, headers=reader).json()["data"]
        return [f"{group['name']}/{rule['name']}" for group in data["groups"] for rule in group["rules"]]

    assert names(type="alert") == ["checkout/Loud", "zzz/Loud"]
    assert names(**{"rule_name[]": "lines:rate", "rule_group[]": "zzz"}) == ["zzz/lines:rate"]
    assert names(**{"file[]": "elsewhere"}) == [] and names(**{"match[]": '{severity="page"}'}) == [
        *("checkout/Loud", "zzz/Loud")
    ]
    page = client.get(_PROMETHEUS, params={"group_limit": 1}, headers=reader).json()["data"]
    assert [group["name"] for group in page["groups"]] == ["checkout"]
    assert names(group_limit="1", group_next_token=page["groupNextToken"])[0] == "zzz/lines:rate"
    for wrong in ({"type": "x"}, {"group_next_token": "x"}, {"group_limit": 1, "group_next_token": "x"}):
        assert client.get(_PROMETHEUS, params=wrong, headers=reader).status_code == 400
    assert client.delete(f"{_RULES}/shop", headers=admin).status_code == 202


def test_bad_groups_are_refused_with_their_reason(serve: Serve, two_orgs: TwoOrgs) -> None:
    client, admin = serve(two_orgs.auth).client, _bearer(two_orgs, "our_admin")

    def refused(text: str) -> str:
        answer = client.post(f"{_RULES}/bad", content=text, headers=admin)
        assert answer.status_code == 400, answer.text
        return answer.text

    assert "no name" in refused("rules: []")
    assert "not YAML" in refused("{")
    assert "expr: " in refused("name: g\nrules: [{alert: A, expr: 'rate({a='}]")
    assert "no vector" in refused("name: g\nrules: [{alert: A, expr: '{a=\"b\"}'}]")
    assert '"nope" not defined' in refused(
        "name: g\nlanguage: promql\nrules: [{alert: A, expr: up, annotations: {a: '{{ nope }}'}}]"
    )
    assert "a cycle" in refused("name: g\nlanguage: promql\nrules: [{record: a, expr: b}, {record: b, expr: a + 1}]")
    assert "more than 1,000 (ruler.max_rules)" in refused(
        "name: g\nlanguage: promql\nrules:\n" + "".join(f"- {{record: r{n}, expr: up}}\n" for n in range(1_001))
    )
    assert "more than 65,536 characters" in refused(
        f"name: g\nlanguage: promql\nrules: [{{alert: A, expr: up, annotations: {{a: {'x' * 70_000}}}}}]"
    )
    assert "interval" in refused("name: g\ninterval: 10ms\nlanguage: promql\nrules: [{record: a, expr: up}]")
    slow = "name: g\nlanguage: promql\nrules: [{record: a, expr: 'a offset 1m + up'}]"
    assert client.post(f"{_RULES}/good", content=slow, headers=admin).status_code == 202
    assert client.delete(f"{_RULES}/good", headers=admin).status_code == 202


def test_many_groups_are_shown_page_by_page(serve: Serve, two_orgs: TwoOrgs) -> None:
    served = serve(two_orgs.auth)
    reader = _bearer(two_orgs, "ours")
    with served.lake.database.transaction() as tx:
        for number in range(250):
            kind = f"record: r{number}" if number % 2 else f"alert: A{number}"
            text = f"groups: [{{name: g{number:03}, rules: [{{{kind}, expr: up}}]}}]"
            put_group(tx, GroupKey(two_orgs.ours, f"file{number % 5}", f"g{number:03}"), text, "test")
    found: list[str] = []
    params: dict[str, str] = {"group_limit": "40", "type": "alert", "file[]": "file2"}
    pages = 0
    while True:
        page = served.client.get(_PROMETHEUS, params=params, headers=reader).json()["data"]
        found += [group["name"] for group in page["groups"]]
        assert all(rule["type"] == "alerting" for group in page["groups"] for rule in group["rules"])
        pages += 1
        if "groupNextToken" not in page:
            break
        params["group_next_token"] = page["groupNextToken"]
        params["group_limit"] = "7"
    assert found == [f"g{number:03}" for number in range(250) if number % 5 == 2 and number % 2 == 0] and pages == 1
    params = {"group_limit": "100"}
    sizes = []
    while True:
        page = served.client.get(_PROMETHEUS, params=params, headers=reader).json()["data"]
        sizes.append(len(page["groups"]))
        if "groupNextToken" not in page:
            break
        params["group_next_token"] = page["groupNextToken"]
    assert sizes == [100, 100, 50]
    one = served.client.get(_PROMETHEUS, params={"rule_group[]": "g007", "rule_name[]": "r7"}, headers=reader).json()
    assert [group["name"] for group in one["data"]["groups"]] == ["g007"]
    stale = {"group_limit": "1", "group_next_token": "0" * 40}
    assert "were rule groups changed" in served.client.get(_PROMETHEUS, params=stale, headers=reader).text
