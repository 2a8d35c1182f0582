"""The init service: what it gives to each process, and that a second run leaves alone what is as it should be."""

import os
import shutil
from pathlib import Path

import pytest

from deploy import hand_out


def test_a_file_is_replaced_only_when_it_is_another_one(tmp_path: Path) -> None:
    """Processes watch their files: one that is written again without need is reloaded for nothing."""
    target = tmp_path / "tls.key"
    assert hand_out.place(b"one", target)
    first = target.stat().st_ino
    assert not hand_out.place(b"one", target)
    assert target.stat().st_ino == first
    assert hand_out.place(b"two", target)
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["tls.key"]


def test_what_is_handed_out_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever the mask of the process is."""
    hand_out.place(b"secret", tmp_path / "cluster.key")
    assert (tmp_path / "cluster.key").stat().st_mode & 0o777 == 0o600


def test_a_process_gets_its_own_pair_and_never_the_authoritys_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only volumes that are mounted; a client gets no cluster key."""
    cluster, volumes = tmp_path / "cluster", tmp_path / "volumes"
    monkeypatch.setattr(hand_out, "CLUSTER", cluster)
    monkeypatch.setattr(hand_out, "VOLUMES", volumes)
    monkeypatch.setattr(hand_out, "GRAFANA_PASSWORD", volumes / "grafana" / "admin-password")
    for name in ("broker-a-0", "broker-a-1", "scraper"):
        (volumes / name).mkdir(parents=True)
    mounted = {volumes / "broker-a-0", volumes / "scraper"}
    monkeypatch.setattr("os.path.ismount", lambda path: path in mounted)
    monkeypatch.setattr("sys.argv", ["hand_out.py", "--cluster", "test", "--brokers", "2"])
    assert hand_out.main() == 0
    assert sorted(os.listdir(volumes / "broker-a-0")) == ["ca.crt", "cluster.key", "tls.crt", "tls.key"]
    assert sorted(os.listdir(volumes / "scraper")) == ["ca.crt", "tls.crt", "tls.key"]
    assert os.listdir(volumes / "broker-a-1") == []
    assert (volumes / "broker-a-0" / "tls.key").read_bytes() == (cluster / "certs/broker/broker-a-0.key").read_bytes()
    shutil.rmtree(cluster)
