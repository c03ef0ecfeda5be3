"""TLS between the API and its workers: each side presents its certificate, and trusts those that one CA signed."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings import QuerySettings

_PEM = b"-----BEGIN "


def scheme_of(tls: Tls | None) -> str:
    """The scheme of Flight's URLs."""
    return "grpc" if tls is None else "grpc+tls"


@dataclass(frozen=True, slots=True, repr=False)
class Tls:
    """A certificate, its key and the CA's certificate, in PEM; empty if not set."""

    certificate: bytes
    key: bytes
    authority: bytes
    #: The host name in the workers' certificates, if it differs from the address that they are reached at.
    name: str

    def of_client(self) -> dict[str, Any]:
        """Options of a Flight client. It presents its certificate, if any, and trusts workers that the CA signed."""
        return {
            "tls_root_certs": self.authority or None,
            "cert_chain": self.certificate or None,
            "private_key": self.key or None,
            "override_hostname": self.name or None,
        }

    def of_server(self) -> dict[str, Any]:
        """Options of a Flight server. With a CA, it refuses clients without a certificate that the CA signed."""
        return {
            "tls_certificates": [(self.certificate, self.key)],
            "verify_client": bool(self.authority),
            "root_certificates": self.authority or None,
        }


def client_tls(query: QuerySettings) -> Tls | None:
    """The TLS settings of a client of workers; None if connections are not encrypted."""
    if not (query.worker_tls_cert or query.worker_tls_key or query.worker_tls_ca):
        return None
    if bool(query.worker_tls_cert) != bool(query.worker_tls_key):
        missing = "worker_tls_key" if query.worker_tls_cert else "worker_tls_cert"
        raise BadInput(
            "cannot use a certificate without its key, or a key without its certificate",
            hint=f"set query.{missing}",
            where=f"query.{missing}",
        )
    tls = Tls(
        _read(query.worker_tls_cert, "worker_tls_cert"),
        _read(query.worker_tls_key, "worker_tls_key"),
        _read(query.worker_tls_ca, "worker_tls_ca"),
        query.worker_tls_name,
    )
    if tls.certificate:
        _require_pair(query.worker_tls_cert, query.worker_tls_key)
    return tls


def server_tls(query: QuerySettings) -> Tls | None:
    """The TLS settings of a worker; None if connections are not encrypted."""
    tls = client_tls(query)
    if tls is not None and not tls.certificate:
        raise BadInput(
            "cannot serve with an authority alone: the worker needs a certificate of its own",
            hint="set query.worker_tls_cert and query.worker_tls_key",
            where="query.worker_tls_cert",
        )
    return tls


def _read(path: str, setting: str) -> bytes:
    if not path:
        return b""
    try:
        content = Path(path).read_bytes()
    except OSError as reason:
        raise BadInput(f"cannot read {path}: {reason.strerror}", where=f"query.{setting}") from None
    if _PEM not in content:
        raise BadInput(f"cannot use {path}: it is not in PEM", where=f"query.{setting}")
    return content


def _require_pair(cert: str, key: str) -> None:
    """Refuse a key that does not belong to the certificate. gRPC would only report that it did not start."""
    try:
        # An empty password makes an encrypted key fail; without it, OpenSSL would prompt at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password="")
    except ssl.SSLError as reason:
        why = (reason.reason or "unreadable").lower().replace("_", " ")
        raise BadInput(
            f"cannot use {cert} with {key}: {why}", hint="the key must be the certificate's, without a password",
            where="query.worker_tls_key",
        ) from None  # fmt: skip
