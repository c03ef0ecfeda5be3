"""Certificates between the API and its workers: shown, checked, and refused where they are not of the authority."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.tls import client_tls, server_tls
from lakerunner.query.fanout.token import worker_token
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.plan.planner import Planner
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.settings import QuerySettings
from tests.components.certificates import Identities, Identity
from tests.query.lake_of_series import LakeOfSeries


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.make(tmp_path_factory.mktemp("identities"))


def _query(own: Identity | None, authority: Identity | None, **more: object) -> QuerySettings:
    return QuerySettings.model_validate(
        {
            "worker_tls_cert": str(own.cert_path) if own else "",
            "worker_tls_key": str(own.key_path) if own else "",
            "worker_tls_ca": str(authority.cert_path) if authority else "",
            **more,
        }
    )


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    loaded = MemorySource()
    loaded.add(LabelSet.of({"__name__": "m"}), np.arange(10) * 1000, np.arange(10.0))
    return lake.write(loaded)


@pytest.fixture
def worker(lake: LakeOfSeries, identities: Identities, request: pytest.FixtureRequest) -> Iterator[QueryWorker]:
    own = getattr(identities, getattr(request, "param", "server"))
    role = QueryWorker(lake.settings.model_copy(update={"query": _query(own, identities.ours)}))
    role.start()
    yield role
    role.close()


def _read(lake: LakeOfSeries, org: uuid.UUID, worker: QueryWorker, query: QuerySettings) -> int:
    token = worker_token(lake.settings)
    workers = FlightWorkers(lambda: [worker.address], token, patience_s=0.3, tls=client_tls(query))
    try:
        source = LakeQuery(org, Planner(lake.lake._catalog, org), workers)
        return len(source.select([Matcher("__name__", MatchKind.EQUAL, "m")], 0, 1 << 40).values)
    finally:
        workers.close()


def test_each_shows_its_certificate(
    lake: LakeOfSeries, org: uuid.UUID, identities: Identities, worker: QueryWorker
) -> None:
    assert _read(lake, org, worker, _query(identities.client, identities.ours)) == 10


def test_a_client_without_a_certificate_is_refused(
    lake: LakeOfSeries, org: uuid.UUID, identities: Identities, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(None, identities.ours))


def test_a_client_of_another_authority_is_refused(
    lake: LakeOfSeries, org: uuid.UUID, identities: Identities, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(identities.stranger, identities.ours))


def test_a_client_that_does_not_encrypt_is_refused(lake: LakeOfSeries, org: uuid.UUID, worker: QueryWorker) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, QuerySettings())


def test_a_worker_of_another_authority_is_not_believed(
    lake: LakeOfSeries, org: uuid.UUID, identities: Identities, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(identities.client, identities.theirs))


@pytest.mark.parametrize("worker", ["named"], indirect=True)
def test_workers_may_share_a_name(
    lake: LakeOfSeries, org: uuid.UUID, identities: Identities, worker: QueryWorker
) -> None:
    assert (
        _read(lake, org, worker, _query(identities.client, identities.ours, worker_tls_name="query-worker.internal"))
        == 10
    )
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(identities.client, identities.ours))
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(identities.client, identities.ours, worker_tls_name="another.internal"))


def test_files_that_cannot_be_used(identities: Identities, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"worker_tls_ca: cannot read .*No such file"):
        client_tls(QuerySettings(worker_tls_ca=str(tmp_path / "none.pem")))
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(BadInput, match="not in PEM"):
        client_tls(QuerySettings(worker_tls_ca=str(text)))
    with pytest.raises(BadInput, match=r"set query\.worker_tls_key"):
        client_tls(QuerySettings(worker_tls_cert=str(identities.client.cert_path)))
    with pytest.raises(BadInput, match="needs a certificate of its own"):
        server_tls(_query(None, identities.ours))
    assert client_tls(QuerySettings()) is None


def test_a_key_that_is_not_the_certificates_is_said_at_the_start(lake: LakeOfSeries, identities: Identities) -> None:
    query = _query(identities.server, identities.ours, worker_tls_key=str(identities.client.key_path))
    worker = QueryWorker(lake.settings.model_copy(update={"query": query}))
    with pytest.raises(BadInput, match="key values mismatch"):
        worker.start()
    worker.close()
