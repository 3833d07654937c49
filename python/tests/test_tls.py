"""TLS of the server with real clients: psycopg, psql, curl and pyarrow.

Logins are bound to their connection, and certificates of clients name users.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import lockstep

CERTIFICATES = Path(__file__).parents[2] / "crates/server/tests/server/certificate"
AUTHORITY = str(CERTIFICATES / "certificate.pem")
CERTIFICATE = CERTIFICATES / "client.pem"
KEY = CERTIFICATES / "client_key.pem"

SETUP = """
CREATE TABLE t (v INT); INSERT INTO t VALUES (7);
CREATE USER ann; GRANT SELECT ON t TO ann;
CREATE USER bob OPTIONS(password='secret'); GRANT SELECT ON t TO bob;
"""


class TlsServer(NamedTuple):
    """A server with TLS, and where it listens."""

    process: subprocess.Popen
    http: int
    postgres: int
    flight: int
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for name in ("certificate.pem", "key.pem", "client_ca.pem"):
        shutil.copy(CERTIFICATES / name, folder / name)
    # libpq takes no key that others can read.
    shutil.copy(KEY, folder / KEY.name)
    (folder / KEY.name).chmod(0o600)
    directory = str(folder / "features.lockstep")
    start = [sys.executable, "-m", "lockstep"]
    subprocess.run([*start, "-c", SETUP, directory], check=True, timeout=60)
    command = [*start, "serve", directory]
    for name in ("http", "postgres", "flight"):
        command += ["--set", f"{name}.listen=127.0.0.1:0"]
    files = {"certificate": "certificate", "key": "key", "client_ca": "client_ca"}
    for key, name in files.items():
        command += ["--set", f"tls.{key}={folder / name}.pem"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        ports = [int(line.split(" for ")[0].rsplit(":", 1)[1]) for line in lines]
        yield TlsServer(process, *ports, folder)
        process.terminate()


def certificate_of(served: TlsServer) -> dict[str, str]:
    return {"sslcert": str(CERTIFICATE), "sslkey": str(served.folder / KEY.name)}


def connect(served: TlsServer, user: str, **options: str):
    psycopg = pytest.importorskip("psycopg")
    given = {"sslmode": "verify-full", "sslrootcert": AUTHORITY, "sslcert": "", **options}
    return psycopg.connect(
        host="localhost", hostaddr="127.0.0.1", port=served.postgres, user=user,
        dbname="default", autocommit=True, connect_timeout=20, **given,
    )  # fmt: skip


def test_a_login_is_bound_to_its_connection(served):
    for binding in ("require", "prefer", "disable"):
        with connect(served, "bob", password="secret", channel_binding=binding) as bob:
            assert bob.execute("SELECT v FROM t").fetchall() == [(7,)]
            assert bob.pgconn.ssl_in_use


def test_a_wrong_password_is_refused_with_a_binding(served):
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        connect(served, "bob", password="wrong", channel_binding="require")


def test_a_certificate_names_its_user(served):
    psycopg = pytest.importorskip("psycopg")
    with connect(served, "ann", **certificate_of(served)) as ann:
        assert ann.execute("SELECT v FROM t").fetchall() == [(7,)]
        assert ann.execute("SELECT current_user").fetchall() == [("ann",)]
    with pytest.raises(psycopg.OperationalError):
        connect(served, "bob", **certificate_of(served))


def test_old_versions_are_refused(served):
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.OperationalError):
        connect(
            served, "bob", password="secret",
            ssl_min_protocol_version="TLSv1.1", ssl_max_protocol_version="TLSv1.1",
        )  # fmt: skip
    for version in ("TLSv1.2", "TLSv1.3"):
        limits = {"ssl_min_protocol_version": version, "ssl_max_protocol_version": version}
        with connect(served, "bob", password="secret", channel_binding="require", **limits) as bob:
            assert bob.execute("SELECT v FROM t").fetchall() == [(7,)], version


def test_flight_takes_certificates(served):
    flight = pytest.importorskip("pyarrow.flight")
    certificate = CERTIFICATE.read_bytes()
    key = KEY.read_bytes()
    authority = Path(AUTHORITY).read_bytes()
    url = f"grpc+tls://localhost:{served.flight}"

    def actions(**options) -> int:
        with flight.FlightClient(url, tls_root_certs=authority, **options) as client:
            return len(list(client.list_actions()))

    assert actions(cert_chain=certificate, private_key=key) > 0
    with pytest.raises(flight.FlightUnauthenticatedError):
        actions()


def curl(served: TlsServer, *options: str) -> subprocess.CompletedProcess[str]:
    url = f"https://localhost:{served.http}/v1/sql"
    command = ["curl", "-s", "-w", "%{http_code}", "-o", "/dev/null", "--cacert", AUTHORITY, url]
    body = ["-d", '{"sql": "SELECT v FROM t"}', *options]
    return subprocess.run([*command, *body], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_takes_certificates(served):
    with_client = ["--cert", str(CERTIFICATE), "--key", str(KEY)]
    assert curl(served, *with_client).stdout == "200"
    assert curl(served).stdout == "401"
    assert curl(served, "-u", "bob:secret").stdout == "200"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_reload_takes_another_authority(served):
    with_client = ["--cert", str(CERTIFICATE), "--key", str(KEY)]

    def reload_with(name: str) -> None:
        shutil.copy(CERTIFICATES / name, served.folder / "client_ca.pem")
        served.process.send_signal(signal.SIGHUP)
        for line in served.process.stderr:
            if "configuration reloaded" in line:
                return

    reload_with("other_client.pem")
    assert curl(served, *with_client).returncode != 0, "its authority is no longer known"
    assert curl(served, "-u", "bob:secret").stdout == "200"
    reload_with("client_ca.pem")
    assert curl(served, *with_client).stdout == "200"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_of_openssl_is_taken_or_refused_with_what_is_missing(tmp_path):
    name = "subjectAltName=DNS:localhost"
    server = "basicConstraints=critical,CA:FALSE"
    for number, (extensions, missing) in enumerate(
        (
            ([], "CA:TRUE"),
            ([name], "CA:TRUE"),
            ([server, "subjectAltName=DNS:example.com"], "does not include this host"),
            ([server, name], None),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        make = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ]
        make += ["-keyout", str(key), "-out", str(certificate)]
        make += [part for extension in extensions for part in ("-addext", extension)]
        subprocess.run(make, check=True, capture_output=True, timeout=60)
        command = [sys.executable, "-m", "lockstep", "serve", ":memory:", "--postgres", "off"]
        command += ["--http", "127.0.0.1:0", "--flight", "127.0.0.1:0"]
        command += ["--set", "server.authentication=none"]
        command += ["--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            flight = [process.stdout.readline() for _ in range(2)][1]
            url = f"lockstep://localhost:{flight.split()[2].rsplit(':', 1)[1]}?ca={certificate}"
            try:
                if missing is None:
                    lockstep.connect(url).close()
                    continue
                with pytest.raises(lockstep.Error, match=missing) as refused:
                    lockstep.connect(url)
                assert "-addext basicConstraints=critical,CA:FALSE" in refused.value.hint
                assert name in refused.value.hint
            finally:
                process.terminate()
