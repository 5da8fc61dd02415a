"""Certificates of an authority and of a server, and keys by which SuperNodes are known."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from zerosum.client.files.private_files import write_private

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Files: the authority's certificate, the server's, and the server's key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, addresses: Sequence[str]) -> Certificates:
    """Make an authority, and a server certificate of its for some addresses, good for a day.

    Parameters
    ----------
    folder : Path
        Absent until now.
    addresses : sequence of str
        IP addresses of the server.

    Returns
    -------
    Certificates
        The files.
    """
    folder.mkdir(parents=True)
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    name = _name("zerosum rehearsal authority")
    authority = (
        _builder(name, name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    hosts = [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    certificate = (
        _builder(_name("superlink"), name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(made.key, server_key)
    return made


def make_node_key(path: Path) -> Path:
    """Write a SuperNode's key, and return the file of its public part."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_key(path, key, serialization.PrivateFormat.OpenSSH)  # what ssh-keygen writes
    public = path.with_suffix(".pub")
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    return public


def _write_key(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    kind: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> None:
    write_private(
        path, key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
