"""The Helm chart over all files of values: it renders, real schemas accept it, and it says what the roles need."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError

from lakerunner.ops.roles import CANARY_ROLES, ROLES, ROLES_BY_SIGNAL
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.settings.table import TABLE
from tests.components.peers import peer
from tests.deploy import operator_schemas
from tests.deploy.chart import CHART, FULL, VALUES, Object, RefusedValues, containers, of_kind, render, run_helm
from tests.deploy.connections import CONNECTIONS, DEPLOY, peers_of
from tests.deploy.kubernetes_schemas import require_valid
from tests.deploy.policies import allows

#: The oldest Kubernetes that the chart claims, and the newest whose schemas are known.
KUBERNETES = ("1.27", "1.37")
#: The first test may build helm's renderer.
pytestmark = pytest.mark.timeout(450)
DISTRIBUTED = [path for path in VALUES if path.stem != "all-in-one"]


@cache
def rendered(values: Path) -> list[Object]:
    return render(values)


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_helm_has_no_complaint(values: Path) -> None:
    done = run_helm("lint", "--strict", "-f", values, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_kubernetes_schemas_accept_every_object(values: Path, version: str) -> None:
    own = [each for each in rendered(values) if each["kind"] not in operator_schemas.DEFINITIONS]
    assert own
    with pytest.raises(ValidationError):
        require_valid({**own[0], "surprise": 1}, version)
    for each in own:
        require_valid(each, version)


def test_operators_accept_their_kinds() -> None:
    found = [each for values in VALUES for each in rendered(values) if each["kind"] in operator_schemas.DEFINITIONS]
    assert {each["kind"] for each in found} == set(operator_schemas.DEFINITIONS)
    for each in found:
        operator_schemas.require_valid(each)
        with pytest.raises(ValidationError, match="surprise"):
            operator_schemas.require_valid({**each, "spec": {**each["spec"], "surprise": 1}})


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_the_whole_of_helm_renders_the_same(values: Path) -> None:
    assert render(values, program=peer("helm")) == rendered(values)


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_names_are_unique_and_short(values: Path) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered(values)]
    assert len(names) == len(set(names))
    # A pod's name has a suffix, and a label of 63 characters holds it.
    assert all(len(name) <= 45 for _, name in names)


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_settings_are_those_of_lakerunner(values: Path, tmp_path: Path) -> None:
    objects = rendered(values)
    settings = _settings(objects, tmp_path)
    assert str(settings.data.dir) == "/data" and settings.http.host == "0.0.0.0"
    known = {setting.env for setting in TABLE.values()} | {"LAKERUNNER_CONFIG"}
    for _, _, container in containers(objects):
        names = {each["name"] for each in container["env"] if each["name"].startswith("LAKERUNNER_")}
        assert names <= known


def _settings(objects: list[Object], folder: Path) -> Settings:
    config = next(each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == FULL)
    path = folder / "lakerunner.yaml"
    path.write_text(config["data"]["lakerunner.yaml"])
    return load_settings(path)


def test_every_role_of_serve_is_deployed() -> None:
    objects = rendered(DEPLOY / "helm/values/minimal.yaml")
    assert set(of_kind(objects, "Deployment")) == {entry.name for entry in ROLES} - {"sweeper"}
    assert set(of_kind(objects, "StatefulSet")) == {"sweeper"}
    every = {entry.name for entry in (*ROLES, *ROLES_BY_SIGNAL, *CANARY_ROLES)} | {"serve", "migrate"}
    for values in VALUES:
        for role, _, container in containers(rendered(values)):
            assert role in every and container["args"] == [role]


def test_sizes_are_those_of_the_sizing_guide() -> None:
    objects = rendered(DEPLOY / "helm/values/minimal.yaml")
    scaled = of_kind(objects, "HorizontalPodAutoscaler")
    found = {
        role: (
            *_sizes(container["resources"]),
            scaled[role]["spec"]["minReplicas"],
            scaled[role]["spec"]["maxReplicas"],
        )
        for role, _, container in containers(objects)
        if role in ("ingest", "query-worker")
    }
    assert found == {
        "ingest": ("2", "4Gi", "4", "8Gi", 3, 10),
        "query-worker": ("4", "8Gi", "8", "16Gi", 5, 20),
    }


def _sizes(resources: Object) -> tuple[str, ...]:
    return tuple(str(resources[bound][kind]) for bound in ("requests", "limits") for kind in ("cpu", "memory"))


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_pods_run_as_nobody_in_a_root_that_cannot_be_written(values: Path) -> None:
    for role, pod, container in containers(rendered(values)):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]
        allowed = container["securityContext"]
        assert allowed["readOnlyRootFilesystem"] and allowed["allowPrivilegeEscalation"] is False
        assert allowed["capabilities"]["drop"] == ["ALL"]
        assert "/data" in {mount["mountPath"] for mount in container["volumeMounts"]}
        # Only drivers of Spark on Kubernetes speak to its API.
        drives = values.stem == "spark-kubernetes" and "spark" in peers_of(role)
        assert pod["automountServiceAccountToken"] is drives if role != "serve" else True
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("values", VALUES, ids=by_name)
def test_pods_have_time_to_drain(values: Path, tmp_path: Path) -> None:
    objects = rendered(values)
    settings = _settings(objects, tmp_path)
    needs = {
        "query-api": max(settings.http.drain_s, settings.api.finish_s),
        "query-worker": settings.query.worker_drain_s,
        "ruler": settings.ruler.timeout_s,
        "serve": settings.serve.stop_timeout_s,
    }
    for role, pod, container in containers(objects):
        if role == "migrate":
            continue
        before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
        assert pod["terminationGracePeriodSeconds"] > before + needs.get(role, 30.0)
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
        # Out of the service within the time that the API goes on answering.
        if role == "query-api":
            probe = container["readinessProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] <= before + settings.http.drain_s


@pytest.mark.parametrize("values", DISTRIBUTED, ids=by_name)
def test_a_role_knows_only_the_secrets_of_its_peers(values: Path) -> None:
    given = yaml.safe_load(values.read_text())
    known = {**CONNECTIONS["peers"], **CONNECTIONS["services"]}
    for role, _, container in containers(rendered(values)):
        needed = {
            setting
            for peer, about in known.items()
            if peer in peers_of(role) | {role}
            for setting in about.get("secrets", ())
            if setting in given["secrets"]
        }
        taken = {each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})}
        if "SPARK_SECRET_OPTIONS" in taken:
            # A part of the options, because the chart sets others.
            taken = (taken - {"SPARK_SECRET_OPTIONS"}) | {TABLE["spark.options"].env}
        assert taken == {TABLE[setting].env for setting in needed}
        sources = [each["secretRef"]["name"] for each in container.get("envFrom", ())]
        assert sources == (given.get("bucketCredentials", []) if peers_of(role) & {"bucket", "queue"} else [])


def test_policies_allow_the_arrows_between_roles_and_no_others() -> None:
    objects = rendered(DEPLOY / "helm/values/aws.yaml")
    roles = set(of_kind(objects, "Deployment", "StatefulSet"))
    ports = CONNECTIONS["ports"]
    for caller in roles:
        for callee in roles - {caller}:
            at = CONNECTIONS["services"].get(callee, {}).get("port", "http")
            for name, port in ports.items():
                arrow = callee in peers_of(caller) and name == at
                assert allows(objects, caller, callee, port) is arrow, (caller, callee, name)


@pytest.mark.parametrize("values", ["aws", "minimal", "keda", "spark-external"])
def test_policies_open_the_ports_of_peers_outside(values: str) -> None:
    path = DEPLOY / f"helm/values/{values}.yaml"
    objects = rendered(path)
    given = yaml.safe_load(path.read_text())
    where = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicies"]["peers"]
    where |= given.get("networkPolicies", {}).get("peers", {})
    absent = set() if given["config"].get("bus", {}).get("kind") == "kafka" else {"bus"}
    if values != "spark-external":
        absent.add("spark")
    for role, policy in of_kind(objects, "NetworkPolicy").items():
        wanted = {
            (port, str(where[peer]["to"]))
            for peer in peers_of(role) & set(where) - absent
            for port in where[peer]["ports"]
        }
        if "telemetry" in given["config"]:
            wanted |= {(port, "[]") for port in where["collector"]["ports"]}
        if values == "spark-external" and "spark" in peers_of(role):
            # Blocks of its executors.
            wanted.add((CONNECTIONS["ports"]["spark-blocks"], str(where["spark"]["to"])))
        internal = [{"podSelector"}]
        found = {
            (each["port"], str(rule.get("to", [])))
            for rule in policy["spec"]["egress"]
            for each in rule["ports"]
            if each["port"] != 53 and [set(peer) for peer in rule.get("to", ())][:1] != internal
        }
        assert found == wanted, role


def test_executors_meet_their_drivers_only() -> None:
    objects = rendered(DEPLOY / "helm/values/spark-kubernetes.yaml")
    ports = CONNECTIONS["ports"]
    for role in of_kind(objects, "Deployment"):
        drives = "spark" in peers_of(role)
        assert allows(objects, "spark-executor", role, ports["spark-driver"]) is drives
        assert allows(objects, role, "spark-executor", ports["spark-blocks"]) is drives
    granted = of_kind(objects, "Role")[""]["rules"]
    assert [rule["resources"] for rule in granted] == [["pods", "configmaps", "persistentvolumeclaims"]]
    config = next(each for each in objects if each["kind"] == "ConfigMap")
    template = yaml.safe_load(config["data"]["executor.yaml"])
    require_valid(template, KUBERNETES[-1])
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "spark-executor"
    assert template["spec"]["automountServiceAccountToken"] is False


def test_what_spark_is_told_is_what_spark_understands() -> None:
    from lakerunner.pipeline.spark.session import session_options

    objects = rendered(DEPLOY / "helm/values/spark-kubernetes.yaml")
    container = of_kind(objects, "Deployment")["ingest"]["spec"]["template"]["spec"]["containers"][0]
    text = next(each["value"] for each in container["env"] if each["name"] == "LAKERUNNER_SPARK_OPTIONS")
    config = next(each for each in objects if each["kind"] == "ConfigMap")
    given = text.replace("$(SPARK_SECRET_OPTIONS)", "spark.authenticate=true")
    spark = yaml.safe_load(config["data"]["lakerunner.yaml"])["spark"] | {"options": given}
    options = session_options(load_settings(overrides={f"spark.{name}": value for name, value in spark.items()}).spark)
    assert spark["master"] == "k8s://https://kubernetes.default.svc"
    assert text.endswith(" $(SPARK_SECRET_OPTIONS)")
    assert options["spark.driver.host"] == "$(POD_IP)" and options["spark.executor.cores"] == "4"
    assert options["spark.kubernetes.executor.deleteOnTermination"] == "true"


def test_rules_and_dashboard_are_the_shipped_files() -> None:
    objects = rendered(DEPLOY / "helm/values/aws.yaml")
    rules = next(each for each in objects if each["kind"] == "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())
    shipped = (DEPLOY / "grafana/lakerunner.json").read_text()
    board = next(each for each in objects if each["metadata"]["name"].endswith("-dashboard"))
    assert board["data"]["lakerunner.json"].strip() == shipped.strip()


def test_autoscalers_follow_cpu_and_lag() -> None:
    by_lag = of_kind(rendered(DEPLOY / "helm/values/scaled-by-lag.yaml"), "HorizontalPodAutoscaler")
    external = [each for each in by_lag["ingest"]["spec"]["metrics"] if each["type"] == "External"]
    assert external[0]["external"]["metric"]["selector"] == {"matchLabels": {"group": "ingest"}}
    by_keda = of_kind(rendered(DEPLOY / "helm/values/keda.yaml"), "ScaledObject")
    queries = [trigger["metadata"]["query"] for trigger in by_keda["ingest-logs"]["spec"]["triggers"][1:]]
    assert queries == ['max(sum by (instance) (lakerunner_bus_lag{group="ingest"}))']
    objects = rendered(DEPLOY / "helm/values/keda.yaml")
    assert "replicas" not in of_kind(objects, "Deployment")["ingest-logs"]["spec"]
    assert not of_kind(objects, "HorizontalPodAutoscaler")
    assert not of_kind(rendered(DEPLOY / "helm/values/spark-external.yaml"), "HorizontalPodAutoscaler", "ScaledObject")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((), "roles need a PostgreSQL"),
        (("minimal", "config.store.url="), "roles need a bucket"),
        (("", "config.store.url=s3://a", "config.index.url=postgresql://lake@db/lrdb"), "query workers need a secret"),
        (("minimal", "roles.ingesst.replicas=1"), "roles.ingesst: there is no such role"),
        (("minimal", "roles.ingest.replica=1"), "replica"),
        (("minimal", "spark.mode=yarn"), "spark"),
        (("minimal", "imagee.tag=1"), "imagee"),
        (("minimal", "secrets.index\\.url.key="), "key"),
        (("minimal", "secrets.api\\.key.secret=a", "secrets.api\\.key.key=b"), "secrets.api.key: no role needs it"),
        (("minimal", "config.index.url=postgresql://lake:hush@db/lrdb"), "holds a password"),
        (("minimal", "ingress.enabled=true"), "ingress.host is needed"),
    ],
)
def test_values_that_cannot_work_are_refused(values: tuple[str, ...], says: str) -> None:
    files: list[Any] = [DEPLOY / f"helm/values/{values[0]}.yaml"] if values and values[0] else []
    with pytest.raises(RefusedValues, match=re.escape(says)):
        render(*files, *values[1:])
