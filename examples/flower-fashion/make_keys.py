"""Writes the certificates and keys of a federation over TLS in which only registered nodes take part.

    python make_keys.py --host 127.0.0.1 --nodes 3 --out keys

- `ca.crt` is the certificate of the authority that signs the server's certificate; every machine gets it;
- `server.crt` and `server.key` stay on the machine of the SuperLink;
- `node-K` and `node-K.pub` are keys of a node: the private one goes to its machine only, the public one is registered.
"""

import argparse
import datetime as dt
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


def make_keys(folder: Path, host: str, nodes: int, days: int = 365) -> None:
    """Writes certificates for a SuperLink with this host name or address, and a pair of keys for each node."""
    folder.mkdir(parents=True)  # refuses an existing folder, whose keys may be in use
    authority, server = _new(), _new()
    signed_by = _name("flower-fashion authority")
    _write(folder / "ca.crt", _certificate(signed_by, authority, signed_by, authority, None, days))
    _write(folder / "server.crt", _certificate(_name(host), server, signed_by, authority, _address(host), days))
    _write(folder / "server.key", _private(server, PrivateFormat.PKCS8), secret=True)
    for number in range(nodes):
        key = _new()
        _write(folder / f"node-{number}", _private(key, PrivateFormat.OpenSSH), secret=True)
        _write(folder / f"node-{number}.pub", key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _new() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _private(key: ec.EllipticCurvePrivateKey, how: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, how, NoEncryption())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    address: x509.GeneralName | None,
    days: int,
) -> bytes:
    now = dt.datetime.now(dt.UTC)
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))  # the clocks of machines may differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=address is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issued_by, critical=False)
    )
    if address is not None:
        # Processes on the SuperLink's own machine connect to it by these names.
        here = [address, x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(dict.fromkeys(here)), critical=False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True, help="host name or address at which nodes reach the SuperLink")
    parser.add_argument("--nodes", type=int, default=3, help="number of nodes (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("keys"), help="a new folder (default: keys)")
    arguments = parser.parse_args()
    try:
        make_keys(arguments.out, arguments.host, arguments.nodes)
    except FileExistsError:
        parser.error(f"--out must be a new folder, but {arguments.out} exists; choose another one, or delete it.")
