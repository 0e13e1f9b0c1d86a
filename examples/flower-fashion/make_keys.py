"""Writes what a federation over TLS needs, in which only known nodes take part.

    python make_keys.py --host 127.0.0.1 --nodes 3 --out keys

- `ca.crt`, which everyone has: whom the server's certificate is signed by;
- `server.crt` and `server.key`, which stay on the SuperLink's machine;
- `node-K` and `node-K.pub` for each node: the first goes to the node's machine alone, the second is registered.
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
    """Certificates for a SuperLink at this name or address, and a pair of keys for each node."""
    folder.mkdir(parents=True)  # not over keys that may be in use
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
        .not_valid_before(now - dt.timedelta(days=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=address is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issued_by, critical=False)
    )
    if address is not None:
        # The SuperLink's own processes talk to it on its own machine.
        here = [address, x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(dict.fromkeys(here)), critical=False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True, help="the SuperLink's name or address, as nodes will call it")
    parser.add_argument("--nodes", type=int, default=3, help="how many there are (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("keys"), help="a new folder (default: keys)")
    arguments = parser.parse_args()
    try:
        make_keys(arguments.out, arguments.host, arguments.nodes)
    except FileExistsError:
        parser.error(f"{arguments.out} is there already; choose another folder, or delete that one")
