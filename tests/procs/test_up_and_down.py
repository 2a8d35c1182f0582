"""`ternmq up` and `down` with real services: side by side, ports in use, everything gone within 10 s with its state saved."""

import os
import random
import socket
import time
from pathlib import Path

from tests.support.mesh.mesh import Mesh, free_port_base, running_mesh


def is_alive(pid: int) -> bool:
    """Whether a process runs (zombies do not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_two_meshes_run_side_by_side_and_do_not_mix(mesh: Mesh, tmp_path: Path) -> None:
    """Own ports, own directory, own key: a handle of one is forged for the other."""
    with running_mesh(tmp_path, "--brokers", "1") as two:
        for one, body in ((mesh, b"one"), (two, b"two")):
            one.create("both-have-it", "both-have-readers")
            assert one.call("POST", "/v1/topics/both-have-it/messages", content=body).status_code == 201
        path = "/v1/topics/both-have-it/groups/both-have-readers"
        got = [one.call("POST", f"{path}/receive", json={"wait": "5s"}).json()["messages"] for one in (mesh, two)]
        assert [[m["body"] for m in messages] for messages in got] == [["one"], ["two"]]
        forged = two.call("POST", f"{path}/ack", json={"receipt_handles": [got[0][0]["receipt_handle"]]})
        assert (forged.status_code, forged.json()["code"]) == (400, "receipt-invalid")


def test_the_first_send_to_a_new_topic_right_after_up_is_accepted(tmp_path: Path) -> None:
    """Of a new mesh and of one that comes back: the name servers have heard of all that there is, so nobody waits out their warm-up."""
    with running_mesh(tmp_path / "tern", "--namesrvs", "2", "--wait", "60") as mesh:
        first = mesh.call("POST", "/v1/topics/born-with-the-mesh/messages", content=b"x")
        mesh.down()
        mesh.up()
        again = mesh.call("POST", "/v1/topics/born-later/messages", content=b"x")
    assert [(sent.status_code, sent.text[:200]) for sent in (first, again) if sent.status_code != 201] == []


def test_a_port_in_use_is_named_with_the_option_to_change(tmp_path: Path) -> None:
    """Before anything is started; exit code 2; nothing is left running."""
    base = free_port_base(random.Random())
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base + 10))
        taken.listen()
        mesh = Mesh(tmp_path / "tern", port_base=base)
        done = mesh.run("up", "--port-base", str(base), check=False)
        mesh.client.close()
    assert done.returncode == 2
    assert str(base + 10) in done.stderr + done.stdout
    assert "--" in done.stderr + done.stdout
    assert not (tmp_path / "tern" / "mesh.json").exists()


def test_down_ends_every_process_within_10_s_and_up_finds_the_state(tmp_path: Path) -> None:
    """Nothing is left running; what was acked, leased and committed is there again."""
    with running_mesh(tmp_path / "tern") as mesh:
        mesh.create("state", "readers")
        mesh.call("POST", "/v1/topics/state/messages/batch", json={"messages": [{"body": f"{n}"} for n in range(50)]})
        receive = "/v1/topics/state/groups/readers/receive"
        got = mesh.call("POST", receive, json={"max_messages": 20}).json()["messages"]
        acked = mesh.call(
            "POST",
            "/v1/topics/state/groups/readers/ack",
            json={"receipt_handles": [m["receipt_handle"] for m in got]},
        )
        assert acked.json()["failed"] == 0
        pids = [process["pid"] for process in mesh.processes()]
        began_s = time.monotonic()
        mesh.down()
        print(f"down in {time.monotonic() - began_s:.1f} s")
        assert time.monotonic() - began_s < 10
        assert [pid for pid in pids if is_alive(pid)] == []
        saved = list((tmp_path / "tern" / "data").glob("*/state/*"))
        assert len({path.parent.parent.name for path in saved}) == 3, "each broker has saved its state"
        mesh.up()
        rest = mesh.settled("POST", receive, json={"max_messages": 256, "wait": "5s"}).json()["messages"]
        assert len(rest) == 30
        assert {m["body"] for m in got}.isdisjoint(m["body"] for m in rest)
    assert os.listdir(tmp_path / "tern")
