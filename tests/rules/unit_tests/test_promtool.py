"""Unit tests in promtool's format pass and fail as promtool's do; where promtool is found, it is asked too."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from lakerunner.rules.unit_tests.promtool import is_promtool, run_file
from tests.components.peers import peer

_RULES = """\
groups:
  - name: availability
    labels: {team: shop}
    rules:
      - record: job:up:avg
        expr: avg by (job) (up)
      - alert: Down
        expr: job:up:avg < 0.5
        for: 2m
        keep_firing_for: 1m
        labels: {severity: page, level: '{{ if gt $value 0.2 }}some{{ else }}all{{ end }}'}
        annotations:
          summary: '{{ $labels.job }} is at {{ $value | humanizePercentage }} in {{ $externalLabels.region }}'
          worst: '{{ range query "up == 0" | sortByLabel "instance" }}{{ .Labels.instance }} {{ end }}'
  - name: second
    limit: 3
    rules:
      - alert: Absent
        expr: absent(up)
"""
_TEST = """\
rule_files: [rules.yml]
evaluation_interval: 1m
group_eval_order: [availability, second]
tests:
  - name: two of three go away
    interval: 1m
    external_labels: {{region: eu}}
    input_series:
      - series: 'up{{job="a", instance="1"}}'
        values: '1x3 0x6 1x5'
      - series: 'up{{job="a", instance="2"}}'
        values: '1x3 0x6 1x5'
      - series: 'up{{job="a", instance="3"}}'
        values: '1x20'
    alert_rule_test:
      - eval_time: 5m
        alertname: Down
        exp_alerts: []
      - eval_time: 6m30s
        alertname: Down
        exp_alerts:
          - exp_labels: {{job: a, team: shop, severity: page, level: some}}
            exp_annotations: {{summary: 'a is at {percent} in eu', worst: '1 2 '}}
      - eval_time: 11m
        alertname: Down
        exp_alerts:
          - exp_labels: {{job: a, team: shop, severity: page, level: some}}
            exp_annotations: {{summary: 'a is at 33.33% in eu', worst: '1 2 '}}
      - eval_time: 12m
        alertname: Down
    promql_expr_test:
      - expr: job:up:avg
        eval_time: 6m
        exp_samples:
          - labels: 'job:up:avg{{job="a", team="shop"}}'
            value: 0.3333333333333333
      - expr: count(ALERTS{{alertstate="firing"}}) or vector(0)
        eval_time: 12m
        exp_samples: [{{labels: '{{}}', value: 0}}]
"""


def _write(folder: Path, percent: str = "33.33%") -> Path:
    (folder / "rules.yml").write_text(_RULES)
    path = folder / "test.yml"
    path.write_text(_TEST.format(percent=percent))
    return path


def _promtool(path: Path) -> tuple[bool, str]:
    done = subprocess.run([peer("promtool"), "test", "rules", path], capture_output=True, text=True, timeout=60)
    return done.returncode == 0, done.stderr


def test_a_file_that_holds_and_one_that_does_not(tmp_path: Path) -> None:
    report = run_file(_write(tmp_path))
    assert (report.failures, report.tests) == ((), 1)
    (failure,) = run_file(_write(tmp_path, "40%")).failures
    assert "alertname: Down, time: 6m30s" in failure and "a is at 33.33% in eu" in failure


def test_promtool_says_the_same(tmp_path: Path) -> None:
    assert _promtool(_write(tmp_path)) == (True, "")
    path = _write(tmp_path, "40%")
    passed, said = _promtool(path)
    assert not passed and said.strip().endswith(run_file(path).failures[0].strip())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tests: [{alert_rule_test: [{eval_time: 1m}]}]", "misses alertname"),
        ("tests: [{interval: 1x}]", "not a valid duration"),
        ("tests: [{intervall: 1m}]", "has no field 'intervall'"),
        ("tests: [{interval: 1m, interval: 2m}]", "is there twice"),
        ("group_eval_order: [a, a]", "repeated"),
        ("tests: [{input_series: [{series: up, values: '1x9999999999'}]}]", "more than 1,000,000"),
        ("tests: [{promql_expr_test: [{expr: up, eval_time: 200y}]}]", "more than 100,000 evaluations"),
        ("tests: {", "it is not YAML"),
    ],
)
def test_what_is_no_test_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "test.yml"
    path.write_text("rule_files: []\n" + text)
    (failure,) = run_file(path).failures
    assert reason in failure
    assert not is_promtool(": {") and is_promtool("rule_files: []")


_EXPRS = (
    *("a", "a > 2", "sum by (x) (a)", "rate(b[3m]) > 0", "absent(a)", "a and on (x) b", "a offset 1m", "rec > 1"),
    *("count(ALERTS)", "max_over_time(a[2m:1m])", "a / 0", "vector(1)", "scalar(a)", "a or b", "sort_desc(a)"),
)
_TEXTS = (
    *("{{ $value }}", "{{ $labels.x }}", "{{ printf `%.3f` $value }}", "{{ humanize $value }}", "{{ .Labels }}", "y"),
    *("{{ humanizeDuration $value }}", "{{ query `a` | len }}", "{{ if $labels.x }}x{{ else }}y{{ end }}"),
    *("{{ title `a.b c_d 2nd ö-ü don't` }}", "{{ $labels.x | toUpper }}", "{{ humanize1024 $value }}", "{{ .Nope }}"),
    *("{{ humanizeTimestamp $value }}", "{{ range query `a` }}{{ .Value }}{{ end }}", "{{ first (query `none`) }}"),
)


def _random_rules(random_: random.Random) -> str:
    lines = ["groups:"]
    for group in range(random_.randint(1, 2)):
        lines += [f"  - name: g{group}", f"    limit: {random_.choice((0, 0, 0, 1))}", "    rules:"]
        for number in range(random_.randint(1, 3)):
            expr = random_.choice(_EXPRS)
            if random_.random() < 0.3:
                lines += [f"      - record: rec{number or ''}{group or ''}", f"        expr: {expr}"]
            else:
                lines += [f"      - alert: A{group}{number}", f"        expr: {expr}"]
                lines += [f"        for: {random_.choice(('0s', '1m', '2m'))}"]
                lines += [f"        keep_firing_for: {random_.choice(('0s', '1m', '3m'))}"]
                lines += [f'        annotations: {{t: "{random_.choice(_TEXTS)}"}}']
            if random_.random() < 0.3:
                lines += [f"        labels: {{x: {random_.choice(('', 'z', 'q'))!r}}}"]
    return "\n".join(lines) + "\n"


def _random_test(random_: random.Random) -> str:
    series = []
    for metric, label in (("a", "1"), ("a", "2"), ("b", "1")):
        values = " ".join(random_.choice(("1", "3", "_", "0+1x3", "5x2", "stale", "-2", "1e3")) for _ in range(5))
        series.append(f"      - {{series: '{metric}{{x=\"{label}\"}}', values: '{values}'}}")
    minutes = sorted(random_.sample(range(12), 3))
    # No test expects an alert: what there is stands in the failures, and these are compared.
    alerts = [f"      - {{eval_time: {minute}m, alertname: A{n}}}" for minute in minutes for n in ("00", "01", "12")]
    exprs = [f"      - {{expr: '{{__name__=~\"rec.*|ALERTS.*\"}}', eval_time: {minute}m}}" for minute in minutes]
    return "\n".join(
        [
            *("rule_files: [rules.yml]", "group_eval_order: [g0, g1]", "tests:", "  - interval: 1m"),
            *("    input_series:", *series, "    alert_rule_test:", *alerts, "    promql_expr_test:", *exprs),
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_rules_fire_the_same_alerts_as_in_promtool(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    path = tmp_path / "test.yml"
    (tmp_path / "rules.yml").write_text(_random_rules(random_))
    path.write_text(_random_test(random_))
    passed, said = _promtool(path)
    report = run_file(path)
    assert passed == (not report.failures), said
    told = [line.strip() for line in said.splitlines() if line.strip() and "FAILED" not in line]
    ours = [line.strip() for failure in report.failures for line in failure.splitlines()]
    assert ours == told, (tmp_path / "rules.yml").read_text()
