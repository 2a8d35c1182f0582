"""`ternmq init-cluster`, the plan of a secure mesh, and connections with the operator's certificate."""

import json
import ssl
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.failures import CommandFailed
from tern_cli.mesh.http import connect, operator_context
from tern_cli.mesh.plan import MeshShape, plan_from_document, plan_mesh, plan_to_document
from tern_security.authority import read_certificate
from tern_security.cluster_directory import ClusterDirectory, Wanted


def init(*arguments: str) -> tuple[int, str]:
    """Exit code and all output of `ternmq init-cluster ARGUMENTS`."""
    done = CliRunner().invoke(app, ["init-cluster", *arguments])
    return done.exit_code, done.output


def test_a_cluster_gets_a_certificate_for_each_process_and_prints_no_secret(tmp_path: Path) -> None:
    """Names and paths only; no line of any key."""
    code, said = init(str(tmp_path / "c"), "--cluster", "shop", "--checkers", "1", "--add", "client/prometheus")
    assert code == 0, said
    found = {
        str(path.relative_to(tmp_path / "c" / "certs")) for path in tmp_path.rglob("*.crt") if path.name != "ca.crt"
    }
    assert found == {
        *(f"name-server/namesrv-{number}.crt" for number in range(2)),
        *(f"broker/broker-a-{number}.crt" for number in range(3)),
        *(f"proxy/proxy-{number}.crt" for number in range(2)),
        "checker/checker-0.crt", "client/operator.crt", "client/scraper.crt", "client/prometheus.crt",
    }  # fmt: skip
    secrets = [line for path in tmp_path.rglob("*.key") for line in path.read_bytes().splitlines() if len(line) > 20]
    assert not any(line.decode("latin-1") in said for line in secrets if b"PRIVATE KEY" not in line)


def test_a_second_run_adds_what_is_new_and_a_renewal_is_told(tmp_path: Path) -> None:
    """As JSON: what was created, renewed, kept."""
    directory = str(tmp_path / "c")
    assert init(directory)[0] == 0
    code, said = init(directory, "--broker-group", "broker-a", "--broker-group", "broker-b", "-o", "json")
    assert code == 0
    assert json.loads(said)["created"] == [f"certs/broker/broker-b-{number}.crt" for number in range(3)]
    code, said = init(directory, "--renew", "-o", "json")
    document = json.loads(said)
    assert (code, document["created"], len(document["renewed"])) == (0, [], 14)


def test_hosts_are_those_of_the_process_that_is_named(tmp_path: Path) -> None:
    """DNS names and addresses, beside its own name."""
    assert init(str(tmp_path / "c"), "--host", "proxy-0=mq.example.com, 10.1.2.3")[0] == 0
    directory = ClusterDirectory(tmp_path / "c")
    hosts = [
        set(read_certificate(directory.pair("proxy", name).cert.read_bytes()).hosts) for name in ("proxy-0", "proxy-1")
    ]
    assert hosts[0] - hosts[1] == {"proxy-0", "mq.example.com", "10.1.2.3"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--host", "proxy-9=x"],
        ["--host", "proxy-0"],
        ["--host", "proxy-0="],
        ["--add", "king/a"],
        ["--add", "broker"],
        ["--add", "broker/../x"],
        ["--cluster", "a b"],
    ],
)
def test_what_cannot_be_meant_is_exit_code_2_and_makes_nothing(arguments: list[str], tmp_path: Path) -> None:
    """Before an authority exists that nobody wanted."""
    code, said = init(str(tmp_path / "c"), *arguments)
    assert code == 2, said
    assert not list(tmp_path.rglob("*.key"))


def test_a_secure_plan_gives_each_process_its_own_certificate_and_https(tmp_path: Path) -> None:
    """And an ordinary plan none; keys are paths, never texts."""
    plain = plan_mesh(MeshShape(), data_dir="/d", group_id="0" * 32, python="python")
    secure = plan_mesh(MeshShape(secure=True), data_dir="/d", group_id="0" * 32, python="python")
    assert not any("tls" in word for process in plain.processes for word in process.argv)
    for process in secure.processes:
        role = {"namesrv": "name-server", "txn-checker": "checker"}.get(process.role, process.role)
        at = process.argv.index("--tls-cert-file")
        assert process.argv[at : at + 8] == (
            "--tls-cert-file", f"/d/certs/{role}/{process.name}.crt", "--tls-key-file", f"/d/certs/{role}/{process.name}.key",
            "--tls-ca-file", "/d/ca.crt", "--auth", "required",
        )  # fmt: skip
        assert not any(word.startswith("http://") for word in process.argv)
    assert secure.endpoints("proxy") == ["https://127.0.0.1:8080"]
    assert plan_from_document(json.loads(json.dumps(plan_to_document(secure)))) == secure


def test_the_operators_certificate_is_found_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or where the variables say; without one the failure names both."""
    for name in ("TERNMQ_OPERATOR_CERT_FILE", "TERNMQ_OPERATOR_KEY_FILE", "TERNMQ_CA_FILE", "TERNMQ_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommandFailed, match="certificate"):
        connect("https://127.0.0.1:1", timeout_s=1, data_dir=str(tmp_path))
    directory = ClusterDirectory(tmp_path)
    directory.make([Wanted(role="client", name="operator")], cluster="tern", now_s=time.time())
    assert operator_context(str(tmp_path)).verify_mode is ssl.CERT_REQUIRED
    pair = directory.pair("client", "operator")
    monkeypatch.setenv("TERNMQ_OPERATOR_CERT_FILE", str(pair.cert))
    monkeypatch.setenv("TERNMQ_OPERATOR_KEY_FILE", str(pair.key))
    monkeypatch.setenv("TERNMQ_CA_FILE", str(directory.ca_cert))
    assert operator_context(str(tmp_path / "elsewhere")).verify_mode is ssl.CERT_REQUIRED
