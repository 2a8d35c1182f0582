"""The cluster directory: complete, private, added to, never overwritten."""

import time
from pathlib import Path

import pytest

from tern_security.authority import read_certificate
from tern_security.cluster_directory import ClusterDirectory, DirectoryUnusable, Wanted
from tern_wire.principals.client_keys import root_key_text

NOW_S = time.time()
BROKER = Wanted(role="broker", name="broker-a-0")
PROXY = Wanted(role="proxy", name="proxy-0", hosts=("mq.example.com", "10.1.2.3", "fd00::1"))


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    """An empty place."""
    return ClusterDirectory(tmp_path / "cluster")


def contents(directory: ClusterDirectory) -> dict[str, bytes]:
    """Every file below it."""
    return {str(path.relative_to(directory.root)): path.read_bytes() for path in directory.root.rglob("*.*")}


def test_a_first_run_makes_everything_and_a_second_one_nothing(directory: ClusterDirectory) -> None:
    """Idempotent, so that an init container may run at every start."""
    made = directory.make([BROKER, PROXY], cluster="shop", now_s=NOW_S)
    assert made.created == [
        "ca.key", "ca.crt", "cluster.key", "root.key", "certs/broker/broker-a-0.crt", "certs/proxy/proxy-0.crt",
    ]  # fmt: skip
    before = contents(directory)
    again = directory.make([BROKER, PROXY], cluster="shop", now_s=NOW_S)
    assert (again.created, again.renewed, again.kept) == ([], [], 2)
    assert contents(directory) == before


def test_what_is_secret_can_be_read_by_its_owner_alone_and_nothing_else_is_left(directory: ClusterDirectory) -> None:
    """Keys 0600, certificates for everybody, no drafts."""
    directory.make([BROKER], cluster="shop", now_s=NOW_S)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.root.rglob("*") if path.is_file()}
    secret = {name for name in modes if name.endswith(".key")}
    assert secret == {"ca.key", "cluster.key", "root.key", "broker-a-0.key"}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {"ca.crt": 0o644, "broker-a-0.crt": 0o644}
    assert all(modes[name] == 0o600 for name in secret)


def test_the_root_key_follows_from_the_cluster_key(directory: ClusterDirectory) -> None:
    """So every proxy can verify it, and a lost root.key is made again."""
    directory.make([], cluster="shop", now_s=NOW_S)
    key = directory.cluster_key.read_bytes()
    assert len(key) == 32
    assert directory.root_key.read_text() == root_key_text(key) + "\n"
    directory.root_key.unlink()
    assert directory.make([], now_s=NOW_S).created == ["root.key"]
    assert directory.root_key.read_text() == root_key_text(key) + "\n"


def test_a_certificate_names_its_process_and_where_it_is_reached(directory: ClusterDirectory) -> None:
    """Its URI, its name as a host, this machine, and what was asked for; 90 days."""
    directory.make([PROXY], cluster="shop", now_s=NOW_S)
    facts = read_certificate(directory.pair("proxy", "proxy-0").cert.read_bytes())
    assert facts.identity.uri == "mq://shop/proxy/proxy-0"
    assert set(facts.hosts) == {
        "localhost", "127.0.0.1", "::1", "proxy-0", "mq.example.com", "10.1.2.3", "fd00::1",
    }  # fmt: skip
    assert facts.expires_s == pytest.approx(NOW_S + 90 * 86_400, abs=1)


def test_a_renewal_issues_every_certificate_anew_and_keeps_its_hosts_and_all_secrets(
    directory: ClusterDirectory,
) -> None:
    """Of processes that are not named again, too: the directory says which there are."""
    directory.make([BROKER, PROXY], cluster="shop", now_s=NOW_S)
    before = contents(directory)
    made = directory.make([BROKER], now_s=NOW_S + 86_400, renew=True)
    after = contents(directory)
    assert sorted(made.renewed) == ["certs/broker/broker-a-0.crt", "certs/proxy/proxy-0.crt"]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.startswith("certs/")}
    facts = read_certificate(directory.pair("proxy", "proxy-0").cert.read_bytes())
    assert {"mq.example.com", "10.1.2.3"} <= set(facts.hosts)
    assert facts.expires_s == pytest.approx(NOW_S + 91 * 86_400, abs=1)
    assert directory.pair("proxy", "proxy-0").key.stat().st_mode & 0o777 == 0o600


def test_an_existing_cluster_key_is_taken_as_it_is(directory: ClusterDirectory) -> None:
    """A mesh that becomes secure keeps its key, and its receipt handles stay good."""
    directory.root.mkdir()
    directory.cluster_key.write_bytes(bytes(range(32)))
    directory.make([], cluster="shop", now_s=NOW_S)
    assert directory.cluster_key.read_bytes() == bytes(range(32))
    assert directory.root_key.read_text().strip() == root_key_text(bytes(range(32)))


def test_a_directory_of_another_cluster_is_refused(directory: ClusterDirectory) -> None:
    """Nothing of it is touched."""
    directory.make([], cluster="shop", now_s=NOW_S)
    before = contents(directory)
    with pytest.raises(DirectoryUnusable, match="'shop'"):
        directory.make([BROKER], cluster="other", now_s=NOW_S)
    assert contents(directory) == before


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_half_an_authority_is_refused_and_not_replaced(name: str, directory: ClusterDirectory) -> None:
    """A new one would lock every running process out."""
    directory.make([BROKER], cluster="shop", now_s=NOW_S)
    (directory.root / name).unlink()
    before = contents(directory)
    with pytest.raises(DirectoryUnusable):
        directory.make([BROKER, PROXY], now_s=NOW_S)
    assert contents(directory) == before


def test_a_half_written_pair_is_issued_again(directory: ClusterDirectory) -> None:
    """A run that was killed between key and certificate is repaired by the next one."""
    directory.make([BROKER], cluster="shop", now_s=NOW_S)
    directory.pair("broker", "broker-a-0").cert.unlink()
    assert directory.make([BROKER], now_s=NOW_S).created == ["certs/broker/broker-a-0.crt"]


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden"])
def test_names_lead_nowhere_else(name: str, directory: ClusterDirectory) -> None:
    """A name is a part of a path and of a URI."""
    with pytest.raises(ValueError):
        directory.make([Wanted(role="broker", name=name)], cluster="shop", now_s=NOW_S)
