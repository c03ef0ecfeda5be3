"""Certificates between the API and its workers: shown, checked, and refused where they are not of the authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
from tests.query.lake_of_series import LakeOfSeries


@dataclass(frozen=True)
class Paper:
    """An authority, or what one has signed; and the files where it lies."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    cert_path: Path
    key_path: Path


def _paper(folder: Path, name: str, issuer: Paper | None = None, *names: x509.GeneralName) -> Paper:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    paper = Paper(certificate, key, folder / f"{name}.pem", folder / f"{name}.key")
    paper.cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paper.key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paper


@dataclass(frozen=True)
class Papers:
    ours: Paper
    worker: Paper
    #: Its certificate names no address, only a service.
    named: Paper
    api: Paper
    theirs: Paper
    stranger: Paper


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("papers")
    ours, theirs = _paper(folder, "ours"), _paper(folder, "theirs")
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    return Papers(
        ours,
        _paper(folder, "worker", ours, here),
        _paper(folder, "named", ours, x509.DNSName("query-worker.internal")),
        _paper(folder, "api", ours),
        theirs,
        _paper(folder, "stranger", theirs, here),
    )


def _query(own: Paper | None, authority: Paper | None, **more: object) -> QuerySettings:
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
def worker(lake: LakeOfSeries, papers: Papers, request: pytest.FixtureRequest) -> Iterator[QueryWorker]:
    own = getattr(papers, getattr(request, "param", "worker"))
    role = QueryWorker(lake.settings.model_copy(update={"query": _query(own, papers.ours)}))
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


def test_each_shows_its_certificate(lake: LakeOfSeries, org: uuid.UUID, papers: Papers, worker: QueryWorker) -> None:
    assert _read(lake, org, worker, _query(papers.api, papers.ours)) == 10


def test_a_client_without_a_certificate_is_refused(
    lake: LakeOfSeries, org: uuid.UUID, papers: Papers, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(None, papers.ours))


def test_a_client_of_another_authority_is_refused(
    lake: LakeOfSeries, org: uuid.UUID, papers: Papers, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(papers.stranger, papers.ours))


def test_a_client_that_does_not_encrypt_is_refused(lake: LakeOfSeries, org: uuid.UUID, worker: QueryWorker) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, QuerySettings())


def test_a_worker_of_another_authority_is_not_believed(
    lake: LakeOfSeries, org: uuid.UUID, papers: Papers, worker: QueryWorker
) -> None:
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(papers.api, papers.theirs))


@pytest.mark.parametrize("worker", ["named"], indirect=True)
def test_workers_may_share_a_name(lake: LakeOfSeries, org: uuid.UUID, papers: Papers, worker: QueryWorker) -> None:
    assert _read(lake, org, worker, _query(papers.api, papers.ours, worker_tls_name="query-worker.internal")) == 10
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(papers.api, papers.ours))
    with pytest.raises(Unavailable):
        _read(lake, org, worker, _query(papers.api, papers.ours, worker_tls_name="another.internal"))


def test_files_that_cannot_be_used(papers: Papers, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"worker_tls_ca: cannot read .*No such file"):
        client_tls(QuerySettings(worker_tls_ca=str(tmp_path / "none.pem")))
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(BadInput, match="not in PEM"):
        client_tls(QuerySettings(worker_tls_ca=str(text)))
    with pytest.raises(BadInput, match=r"set query\.worker_tls_key"):
        client_tls(QuerySettings(worker_tls_cert=str(papers.api.cert_path)))
    with pytest.raises(BadInput, match="needs a certificate of its own"):
        server_tls(_query(None, papers.ours))
    assert client_tls(QuerySettings()) is None


def test_a_key_that_is_not_the_certificates_is_said_at_the_start(lake: LakeOfSeries, papers: Papers) -> None:
    query = _query(papers.worker, papers.ours, worker_tls_key=str(papers.api.key_path))
    worker = QueryWorker(lake.settings.model_copy(update={"query": query}))
    with pytest.raises(BadInput, match="key values mismatch"):
        worker.start()
    worker.close()
