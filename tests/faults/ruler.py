"""The crash matrix of rulers: one is killed, or frozen, at each point; two others take over; one comes back.

Two groups have half a minute of evaluations to make up for, in which alerts fire and end at times that the seed draws.
In the end every evaluation was stored once, at its time, and a webhook and an Alertmanager know every alert: begun and
ended when the data say so. Nothing is told twice, except of alerts that the lost ruler told last: it may not have
stored that, and if it ends its request when it comes back, the ruler in charge says again how they stand.
On a machine so busy that a ruler cannot renew its leases in time, the same holds for what that ruler told: it says so.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow.compute as pc

from lakerunner.index.orgs import create_org
from lakerunner.index.rule_groups import GroupKey, list_groups, put_group
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals import METRICS
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.ruler.schedule import offset_ms
from tests.faults import matrix
from tests.faults.clean_roles import until
from tests.faults.matrix import Matrix
from tests.faults.victims import ForkedVictim, SilentVictim
from tests.pipeline.lake import ORG
from tests.query.lake_of_series import LakeOfSeries

SILENT = "silent_"
_KILLED = (
    "ruler_after_write",
    "before_commit",
    "after_commit",
    "ruler_before_commit",
    "ruler_after_commit",
    "ruler_before_send",
    "ruler_after_send",
)
POINTS = (
    *_KILLED,
    *(SILENT + point for point in ("ruler_after_write", "before_commit", "ruler_before_send", "ruler_after_send")),
)
_SECONDS = 24
#: What a ruler logs that told a receiver something and found that its lease is another's.
_NOT_STORED = "what was sent to a receiver is not stored"
_GROUPS = {
    "recorded": """
  rules:
  - record: job:up
    expr: sum by (job) (up)
  - alert: Down
    expr: job:up < 1
    for: 3s
""",
    "quiet": """
  rules:
  - alert: Zero
    expr: up == 0
""",
}


class Receivers:
    """A webhook and an Alertmanager that remember what they were told."""

    def __init__(self) -> None:
        self.hook: list[dict[str, Any]] = []
        #: The alerts of each request to the Alertmanager.
        self.manager: list[list[dict[str, Any]]] = []
        #: The alerts of the last request to the webhook.
        self.last_request: list[dict[str, Any]] = []
        self.requests = 0
        heard = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/hook":
                    heard.hook += body["alerts"]
                    heard.last_request = body["alerts"]
                    heard.requests += 1
                else:
                    heard.manager.append(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Trial(matrix.Trial):
    def __post_init__(self) -> None:
        self.receivers = Receivers()
        super().__post_init__()
        with self.lake.database.transaction() as tx:
            create_org(tx, "acme", ORG)

    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        address = self.receivers.address
        return {
            # Long enough for a busy machine to renew leases in time.
            "bus": {"session_timeout_s": 5.0},
            "ruler": {
                "webhooks": f"{address}/hook",
                "alertmanagers": address,
                "catch_up": 1_000,
                "continuous": "off",
                "resend_s": 2.0,
                "threads": 2,
                "org_threads": 2,
            },
        }

    def close(self) -> None:
        super().close()
        self.receivers.close()

    def run(self) -> str:
        self._base_ms = time.time_ns() // 10**9 * 1_000 - 1_000 * (_SECONDS + 6)
        # Job -> the seconds in which it is down; the second one stays down.
        down = self.draw.randint(3, 8)
        self._down = {"a": (down, down + self.draw.randint(5, 10)), "b": (self.draw.randint(2, 12), None)}
        self._put_series()
        self._put_groups()
        with ExitStack() as stack:
            silent = self._lose_one()
            # The thread that tells dies with the others, wherever it is. What it sent may still be on its way.
            time.sleep(0.5)
            self._may_repeat = {_name(alert)[:2] for alert in self.receivers.last_request}
            if silent is not None:
                stack.callback(silent.kill)
            rulers = [stack.enter_context(ForkedVictim(self.lake, "ruler", "nowhere")) for _ in range(2)]
            until(self._is_done, "other rulers make up for all, and tell all", 120.0)
            self._told_before_it_came_back = len(self.receivers.manager)
            if silent is not None:
                requests = self.receivers.requests
                repeats = silent.come_back().count(_NOT_STORED)
                # What it would say now would be the last word.
                time.sleep(0.5)
                late = self.receivers.requests - requests
                # One thread stopped at the point. That of the other receiver may have passed it, and was within its
                # request. The ruler in charge may have repeated it already.
                assert late <= 1 + repeats, f"told {late} times after it came back"
                if late:
                    # The ruler in charge says again how the alerts of that request stand.
                    self._may_repeat |= {_name(alert)[:2] for alert in self.receivers.last_request}
                until(self._is_done, "the last word is what the others say")
            # A ruler whose lease expires while it tells cannot store what it told, and its successor tells it again.
            said = (_NOT_STORED, "alerts not sent", "evaluation not stored")
            self._said = {text: [ruler.said_times(text) for ruler in rulers] for text in said}
            lost = sum(self._said[_NOT_STORED])
        evaluations = self._check_samples()
        self._check_told(lost)
        told = f"told {len(self.receivers.hook)} + {sum(map(len, self.receivers.manager))}"
        return f"evaluations {evaluations} {told}{f' leases lost {lost}' if lost else ''}"

    def _put_series(self) -> None:
        source = MemorySource()
        for job, (first, end) in self._down.items():
            times = [self._base_ms + 1_000 * at for at in range(-5, _SECONDS + 6)]
            values = [
                0.0 if first <= at and (end is None or at < end) else 1.0 for at in range(-5, _SECONDS + 6)
            ]  # fmt: skip
            source.add(LabelSet.of({"__name__": "up", "job": job}), times, values)
        writer = LakeOfSeries(self.folder, self.url)
        try:
            writer.store = self.lake.store
            writer.commit(ORG, [writer.put(ORG, list(source._series.values()))])
        finally:
            writer.close()

    def _put_groups(self) -> None:
        self._shifts: dict[str, int] = {}
        for name, rules in _GROUPS.items():
            key = GroupKey(ORG, "default", name)
            self._shifts[name] = offset_ms(key, 1_000)
            with self.lake.database.transaction() as tx:
                put_group(tx, key, f"groups:\n- name: {name}\n  interval: 1s\n  query_offset: 0s{rules}", "test")
                tx.execute(
                    "UPDATE rule_group SET evaluated_at_ms = %s WHERE name = %s",
                    [self._base_ms + self._shifts[name], name],
                )

    def _lose_one(self) -> SilentVictim | None:
        point = self.cell.point.removeprefix(SILENT)
        passing = self.draw.randint(1, 2 if point.endswith("_send") else 6)
        if point in ("ruler_before_commit", "ruler_after_commit"):
            # Evaluations without samples: before the first alert of the group.
            passing = self.draw.randint(1, 2)
        kind = SilentVictim if self.cell.point.startswith(SILENT) else ForkedVictim
        with kind(self.lake, "ruler", f"{point}:{passing}") as victim:
            until(lambda: victim.died_by_itself, "the ruler dies")
        return victim if isinstance(victim, SilentVictim) else None

    def _expected(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        """(alert, job) -> when it fires, and when it ends."""
        found: dict[tuple[str, str], tuple[int, int | None]] = {}
        for name, alert, wait in (("recorded", "Down", 3), ("quiet", "Zero", 0)):
            base_ms = self._base_ms + self._shifts[name]
            for job, (first, end) in self._down.items():
                found[alert, job] = (base_ms + 1_000 * (first + wait), None if end is None else base_ms + 1_000 * end)
        return found

    def _is_done(self) -> bool:
        with self.lake.database.transaction() as tx:
            groups = list_groups(tx, ORG)
        end_ms = self._base_ms + 1_000 * _SECONDS
        if any((group.evaluated_at_ms or 0) < end_ms for group in groups):
            return False
        return all(_known(self.receivers, alert, job, end) for (alert, job), (_, end) in self._expected().items())

    def _check_samples(self) -> int:
        """Every evaluation recorded both jobs once, at its time and at no other."""
        with self.lake.database.transaction() as tx:
            groups = {group.name: group for group in list_groups(tx, ORG)}
        assert all(group.missed == 0 for group in groups.values()), "evaluations were missed"
        rows = self.lake.rows(METRICS)
        recorded = rows.filter(pc.equal(rows.column("metric_name"), "job:up"))
        times = Counter(recorded.column("timestamp").cast("int64").to_pylist())
        last_ms = groups["recorded"].evaluated_at_ms
        assert last_ms is not None
        first_ms = self._base_ms + self._shifts["recorded"] + 1_000
        expected = Counter(dict.fromkeys(range(first_ms, last_ms + 1, 1_000), len(self._down)))
        # A ruler that was killed at the end may have recorded the batch before the alert's.
        times.pop(last_ms + 1_000, None)
        assert times == expected, f"recorded at other times: {times - expected}, {expected - times}"
        return len(expected)

    def _check_told(self, lost: int) -> None:
        expected = self._expected()
        told: Counter[tuple[str, str, str]] = Counter()
        for alert in self.receivers.hook:
            key = alert["labels"]["alertname"], alert["labels"]["job"]
            start, end = expected[key]
            assert _ms(alert["startsAt"]) == start, f"{key} began at another time"
            if alert["status"] == "resolved":
                assert _ms(alert["endsAt"]) == end, f"{key} ended at another time"
            told[_name(alert)] += 1
        again = {each[:2] for each, count in told.items() if count > 1}
        may_repeat = self._may_repeat if not lost else {each[:2] for each in told}
        # A ruler that comes back cannot know whether others told the same meanwhile, and has it told once more.
        most = 2 + lost + self.cell.point.startswith(SILENT)
        assert max(told.values()) <= most and again <= may_repeat, f"told again: {again - may_repeat}; {self._said}"
        self._check_manager(expected)

    def _check_manager(self, expected: Mapping[tuple[str, str], tuple[int, int | None]]) -> None:
        over: set[tuple[str, str]] = set()
        # A ruler that comes back may have been within one request, which it ends.
        late = 0
        for number, alerts in enumerate(self.receivers.manager):
            again = set()
            for alert in alerts:
                key = alert["labels"]["alertname"], alert["labels"]["job"]
                start, end = expected[key]
                assert _ms(alert["startsAt"]) == start, f"{key} began at another time"
                if end is not None and _ms(alert["endsAt"]) == end:
                    over.add(key)
                elif key in over:
                    again.add(key)
            late += bool(again)
            may_be_late = number >= self._told_before_it_came_back
            assert not again or (may_be_late and late == 1), f"{again} fire again after their end"


def _known(receivers: Receivers, alert: str, job: str, end_ms: int | None) -> bool:
    """Whether both receivers know how the alert stands in the end."""
    labels = {"alertname": alert, "job": job}
    hook = [each for each in receivers.hook if labels.items() <= each["labels"].items()]
    manager = [each for alerts in receivers.manager for each in alerts if labels.items() <= each["labels"].items()]
    if not hook or not manager:
        return False
    if end_ms is None:
        return True
    return hook[-1]["status"] == "resolved" and _ms(manager[-1]["endsAt"]) == end_ms


def _name(alert: Mapping[str, Any]) -> tuple[str, str, str]:
    return alert["labels"]["alertname"], alert["labels"]["job"], alert["status"]


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


MATRIX = Matrix("ruler", POINTS, Trial)
