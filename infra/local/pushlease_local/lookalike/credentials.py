"""Throw-away credentials, made anew at every start: the TLS authority, an APNs key and a Firebase service account."""

import datetime as dt
import ipaddress
import secrets
import ssl
import string
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = dt.timedelta(days=7)  # longer than any local run, short enough to be worthless afterwards

type _PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ApnsCredentials:
    """What a developer downloads from Apple: `key_pem` is the text of the .p8 file."""

    team_id: str
    key_id: str
    key_pem: str
    public_key_pem: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """What a developer downloads from Google, and the public half that Google keeps."""

    json: dict[str, str]
    public_key_pem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """What `gcloud iam workload-identity-pools create-cred-config --aws` writes, and the AWS role that it is for."""

    json: dict[str, Any]
    access_key_id: str
    secret_access_key: str
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority and a context for a server that it vouches for as 127.0.0.1 and localhost."""

    ca_pem: str
    server_tls: ssl.SSLContext


def new_apns_credentials(topics: Iterable[str]) -> ApnsCredentials:
    """Make a P-256 key with a team and a key ID of ten characters, as Apple's are."""
    key = ec.generate_private_key(ec.SECP256R1())
    return ApnsCredentials(
        team_id=_apple_id(), key_id=_apple_id(), key_pem=_private_pem(key), public_key_pem=_public_pem(key),
        topics=tuple(topics),
    )  # fmt: skip


def new_service_account(project_id: str, token_uri: str) -> ServiceAccount:
    """Make an RSA key in the JSON shape of a Google service account."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    email = f"push@{project_id}.iam.gserviceaccount.com"
    fields = {
        "type": "service_account",
        "project_id": project_id,
        "private_key_id": secrets.token_hex(20),
        "private_key": _private_pem(key),
        "client_email": email,
        "client_id": "100000000000000000000",
        "token_uri": token_uri,
    }
    return ServiceAccount(json=fields, public_key_pem=_public_pem(key))


def new_federation(project_id: str, *, sts_url: str, iam_url: str) -> Federation:
    """Make a credential configuration, which holds no secret, and a role's session in the shape of AWS's."""
    provider = "projects/100000000000/locations/global/workloadIdentityPools/aws/providers/pushlease"
    email = f"push@{project_id}.iam.gserviceaccount.com"
    sts = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
    fields = {
        "universe_domain": "googleapis.com",
        "type": "external_account",
        "audience": f"//iam.googleapis.com/{provider}",
        "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
        "token_url": f"{sts_url}/v1/token",
        "service_account_impersonation_url": f"{iam_url}/v1/projects/-/serviceAccounts/{email}:generateAccessToken",
        "credential_source": {
            "environment_id": "aws1",
            "region_url": "http://169.254.169.254/latest/meta-data/placement/availability-zone",
            "url": "http://169.254.169.254/latest/meta-data/iam/security-credentials",
            "regional_cred_verification_url": sts,
        },
    }
    return Federation(
        json=fields,
        access_key_id=f"ASIA{_apple_id()}{_apple_id()[:6]}",
        secret_access_key=secrets.token_urlsafe(30),
        session=secrets.token_urlsafe(120),
    )


def new_authority(now: dt.datetime) -> Authority:
    """Make a certificate authority and a server context that speaks HTTP/2 only."""
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pushlease look-alike CA")])
    ca_usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    ca_key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _builder(ca_name, ca_name, ca_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(ca_usage, critical=True)
        .add_extension(ca_key_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), ca_name, server_key, now)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_key_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Authority(
        ca_pem=ca.public_bytes(pem).decode(),
        server_tls=_server_tls(server.public_bytes(pem).decode() + _private_pem(server_key)),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _VALIDITY)
    )


def _server_tls(chain_pem: str) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads keys from files only
        chain = Path(folder, "chain.pem")
        chain.write_text(chain_pem)
        tls.load_cert_chain(chain)
    return tls


def _apple_id() -> str:
    return "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(10))


def _private_pem(key: _PrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public_pem(key: _PrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
