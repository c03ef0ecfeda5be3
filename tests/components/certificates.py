"""Certificates for tests, as files: authorities, and identities that they signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key, in memory and as files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    cert_path: Path
    key_path: Path


def issue(folder: Path, name: str, issuer: Identity | None = None, *names: x509.GeneralName) -> Identity:
    """Make an authority, or an identity with these names that one signed."""
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
    made = Identity(certificate, key, folder / f"{name}.pem", folder / f"{name}.key")
    made.cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


@dataclass(frozen=True)
class Identities:
    """Two authorities, of which a deployment trusts its own alone, and what they signed."""

    ours: Identity
    #: Of a server at 127.0.0.1.
    server: Identity
    #: Of a server whose certificate names no address, only a service.
    named: Identity
    client: Identity
    theirs: Identity
    #: A server or client that the other authority signed.
    stranger: Identity

    @classmethod
    def make(cls, folder: Path) -> Identities:
        ours, theirs = issue(folder, "ours"), issue(folder, "theirs")
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return cls(
            ours,
            issue(folder, "server", ours, here),
            issue(folder, "named", ours, x509.DNSName("query-worker.internal")),
            issue(folder, "client", ours),
            theirs,
            issue(folder, "stranger", theirs, here),
        )
