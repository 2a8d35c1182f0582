"""`ternmq up` and `ternmq down` without the terminal.

Decides the shape of the mesh, starts the supervisor, and waits until a message is accepted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.file_failures import files_of
from tern_cli.mesh.disk_budget import check_room, with_budget
from tern_cli.mesh.files import GROUP_ID_SIZE_BYTES, MeshFiles
from tern_cli.mesh.hints import with_data_dir
from tern_cli.mesh.options import AskedOptions, differences
from tern_cli.mesh.plan import (
    HOST,
    MeshPlan,
    MeshShape,
    certificate_role,
    member_names,
    plan_mesh,
    plan_to_document,
)
from tern_cli.mesh.process_table import boot_id, is_same, port_is_free, send_signal
from tern_cli.mesh.view import TELLING, answers, notes, process_rows

LOOK_INTERVAL_S = 0.05
# The supervisor kills remaining processes after 8 s and gets two more seconds to end itself.
DOWN_DEADLINE_S = 10.0
_PORT_OPTIONS = {
    "proxy": "--proxy-port",
    "namesrv": "--namesrv-port",
    "broker": "--broker-port",
    "txn-checker": "--checker-port",
}

# A mesh may accept messages before its last node reports its status: worth a short wait.
NODES_ANSWER_WITHIN_S = 2.0

# Proxies, because users get their addresses, and checkers, because they work unprompted. Brokers
# are not awaited: one may start slowly, and the group serves without it.
_READY_BY_PROBE = ("proxy", "txn-checker")

# Probe of an endpoint of the mesh in a directory: "" when the condition holds, else why not.
Probe = Callable[[str, Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Probes that a mesh must pass to count as up.
    A proxy must accept a message, each name server must have ended its warm-up, and every other
    proxy and each checker must be ready.
    """

    accepts: Probe
    warms_up: Probe
    why_not_ready: Callable[[dict[str, Any], Path], str]

    def why_not(self, mesh: dict[str, Any], directory: Path) -> str:
        """Return "" once *mesh*, whose files are in *directory*, accepts messages, else why not."""
        warming = (self.warms_up(each, directory) for each in mesh["namesrvs"])
        return self.accepts(mesh["proxies"][0], directory) or next(filter(None, warming), "")

    def who_is_late(self, mesh: dict[str, Any], directory: Path) -> str:
        """Return "" once the rest of *mesh* is ready, else what one of its processes lacks.
        Processes that have failed for good are not awaited: `notes` names them.
        """
        rest = [row for row in mesh["processes"] if row["role"] in _READY_BY_PROBE and row["state"] != "failed"]
        late = (self.why_not_ready(row, directory) for row in rest if row["url"] != mesh["proxies"][0])
        return next(filter(None, late), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Result of `up`: the mesh as its supervisor describes it, and whether it ran before."""

    mesh: dict[str, Any]
    already_running: bool
    seconds: float
    supervisor: "subprocess.Popen[bytes] | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Decided state of a mesh: its processes and its cluster.json (*is_new*: not written yet)."""

    plan: MeshPlan
    document: dict[str, Any]
    is_new: bool


def settle_cluster(files: MeshFiles, wanted: dict[str, Any]) -> Settled:
    """Decide the mesh: from the given options, then cluster.json, then defaults.
    Nothing is written. CommandFailed (exit 2) when the directory holds another number of brokers,
    since a group's members are fixed at its birth, or when the disk has no room for the files of
    new brokers.
    """
    known = files.read_cluster()
    if not known and any(files.data(name).exists() for name in member_names(9)):
        raise CommandFailed(
            "The mesh's data has no cluster.json",
            f"{files.root / 'data'} holds broker data but {files.cluster} is missing. Restore it, or choose another --data-dir.",
        )
    shape = replace(MeshShape(**known.get("shape", {})), **wanted)
    free_bytes = shutil.disk_usage(files.root).free
    shape = with_budget(shape, free_bytes=free_bytes, is_new=not known)
    if not any(files.data(name).exists() for name in member_names(shape.brokers)):
        # Brokers that have their files start however little room is left: receiving and acking must
        # be possible.
        check_room(shape, free_bytes, where=str(files.root))
    if known and shape.brokers != len(known["members"]):
        raise CommandFailed(
            "This directory belongs to a mesh of another size",
            f"{files.root} holds a group of {len(known['members'])} brokers, {shape.brokers} were asked for. "
            "Leave --brokers out, or choose another --data-dir.",
            exit_code=2,
        )
    group_id = known.get("group_id") or os.urandom(GROUP_ID_SIZE_BYTES).hex()
    document = {
        "version": 1,
        "group_id": group_id,
        "members": member_names(shape.brokers),
        "shape": asdict(shape),
        "born": bool(known.get("born")),
    }
    plan = plan_mesh(shape, data_dir=str(files.root), group_id=group_id, python=sys.executable)
    return Settled(plan=plan, document=document, is_new=document != known)


def start_mesh(
    files: MeshFiles, asked: AskedOptions, *, wait_s: float, probes: Probes, warn: Callable[[str], None]
) -> Started:
    """Start the mesh of *files*, or find it running, and return when it accepts a message.
    It must accept one to a new topic too. *warn* receives problems that do not stop the start.
    CommandFailed when a port is in use or the running mesh has other options (exit 2), or the mesh
    is not ready in *wait_s* seconds; then only processes that ran before keep running.
    """
    began_s = time.monotonic()
    with files_of("--data-dir"):
        files.make_folders()
        lock = files.try_lock()
    if lock < 0:
        mesh = _wait_until_ready(files, began_s + wait_s, probes, warn, ours=False)
        _refuse_other_options(files, asked)
        return Started(mesh=mesh, already_running=True, seconds=time.monotonic() - began_s)
    try:
        with files_of("--data-dir"):
            stop_strays(files)
            settled = settle_cluster(files, asked.wanted())
            # An impossible choice is not saved: the next `up` would repeat it.
            check_ports(settled.plan)
            if settled.is_new:
                files.write_cluster(settled.document)
            if files.make_key() and files.is_born():
                warn(_lost_key(files))
            if settled.document["shape"]["secure"]:
                make_certificates(files, settled.plan)
            supervisor = spawn_supervisor(files, settled.plan, lock, foreground=asked.foreground)
    finally:
        os.close(lock)
    try:
        mesh = _wait_until_ready(files, began_s + wait_s, probes, warn, ours=True)
    except BaseException:
        stop_mesh(files)
        raise
    files.write_cluster({**files.read_cluster(), "born": True})
    return Started(mesh=mesh, already_running=False, seconds=time.monotonic() - began_s, supervisor=supervisor)


def make_certificates(files: MeshFiles, plan: MeshPlan) -> None:
    """Make the certificates of *plan*'s processes in the data directory; existing ones stay.
    CommandFailed (exit 2) when they cannot be made.
    """
    from tern_cli.operating.cluster import SCRAPER, make_cluster  # noqa: PLC0415 - only a secure mesh pays for these
    from tern_security.cluster_directory import Wanted  # noqa: PLC0415
    from tern_security.peer_identity import CLIENT, OPERATOR  # noqa: PLC0415

    wanted = [Wanted(role=certificate_role(process.role), name=process.name) for process in plan.processes]
    clients = [Wanted(role=CLIENT, name=name) for name in (OPERATOR, SCRAPER)]
    make_cluster(files.root, [*wanted, *clients], cluster=plan.cluster)


def start_notes(files: MeshFiles) -> list[str]:
    """Return notes on a mesh that has just become ready.
    Waits at most NODES_ANSWER_WITHIN_S for every broker and checker to answer or fail.
    """
    deadline_s = time.monotonic() + NODES_ANSWER_WITHIN_S
    while True:
        mesh = files.read_mesh()
        asked = [row for row in mesh["processes"] if row["role"] in TELLING and row["state"] != "failed"]
        silent = [row["name"] for row in asked if answers(row, str(files.root)) is None]
        if not silent or time.monotonic() >= deadline_s:
            waited = f"{', '.join(silent)}: no answer yet; see `{with_data_dir('ternmq status', files.root)}`."
            return [*notes(files, process_rows(files, mesh, set())), *([waited] if silent else [])]
        time.sleep(LOOK_INTERVAL_S)


def _refuse_other_options(files: MeshFiles, asked: AskedOptions) -> None:
    found = differences(asked, MeshShape(**files.read_cluster().get("shape", {})))
    if found:
        raise CommandFailed(
            "The mesh is already running with other options",
            f"Nothing was changed. Different: {', '.join(found)}. To start it with these options, stop it first: "
            f"{with_data_dir('ternmq down', files.root)}. The number of brokers stays as it is for the life of a directory.",
            exit_code=2,
        )


def _lost_key(files: MeshFiles) -> str:
    return (
        f"{files.key} was lost, and a new one has been made. No message is lost, but older receipt handles are refused: "
        "their messages are delivered again when their leases end. If you have a copy of the old key, stop the mesh, put it back and start again."
    )


def check_ports(plan: MeshPlan) -> None:
    """Raise CommandFailed (exit 2) that names the first port in use and the option to change it."""
    for port, process, use in plan.ports():
        if not port_is_free(HOST, port):
            raise CommandFailed(
                "A port is in use",
                f"Port {port} ({use} of {process.name}) is taken by another process. Choose another with "
                f"{_PORT_OPTIONS[process.role]}, or move the whole mesh with --port-base.",
                exit_code=2,
            )


def spawn_supervisor(
    files: MeshFiles, plan: MeshPlan, lock: int, *, foreground: bool = False
) -> "subprocess.Popen[bytes] | None":
    """Start the supervisor, which inherits the lock.
    In the *foreground* it is a child of this process, else it is detached in its own session.
    """
    with files.log("supervisor").open("ab") as log:
        supervisor = subprocess.Popen(  # noqa: S603 - our own module
            # -P: modules must not be imported from the user's folder.
            [sys.executable, "-P", "-m", "tern_cli.mesh.supervisor", *([] if foreground else ["--detach"])],
            stdin=subprocess.PIPE,
            stdout=None if foreground else log,
            stderr=None if foreground else log,
            pass_fds=(lock,),
            start_new_session=not foreground,
        )
    assert supervisor.stdin
    with supervisor.stdin as stdin:
        stdin.write(json.dumps(plan_to_document(plan)).encode())
    if foreground:
        return supervisor
    supervisor.wait()
    return None


def stop_mesh(files: MeshFiles) -> bool:
    """Stop the mesh of *files* within 10 s; return False when nothing ran."""
    if not files.root.exists():
        return False
    deadline_s = time.monotonic() + DOWN_DEADLINE_S
    lock = files.try_lock()
    ran = lock < 0
    told = False
    while lock < 0 and time.monotonic() < deadline_s:
        if not told:
            # mesh.json is missing while another `up` is between taking the lock and the
            # supervisor's start.
            told = _signal_supervisor(files, signal.SIGTERM)
        time.sleep(LOOK_INTERVAL_S)
        lock = files.try_lock()
    if lock < 0:
        _signal_supervisor(files, signal.SIGKILL)
        time.sleep(LOOK_INTERVAL_S)
    else:
        os.close(lock)
    return stop_strays(files, patience_s=0.0 if ran else 8.0) or ran


def stop_strays(files: MeshFiles, patience_s: float = 8.0) -> bool:
    """End processes that a dead supervisor left behind and remove its mesh.json.
    Returns False when no such process was alive.
    """
    mesh = files.read_mesh()
    alive = living(mesh)
    found = bool(alive)
    deadline_s = time.monotonic() + patience_s
    for row in alive:
        send_signal(row["pid"], row["start_ticks"], signal.SIGTERM)
    while alive and time.monotonic() < deadline_s:
        time.sleep(LOOK_INTERVAL_S)
        alive = living(mesh)
    for row in alive:
        send_signal(row["pid"], row["start_ticks"], signal.SIGKILL)
    files.mesh.unlink(missing_ok=True)
    return found


def living(mesh: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of *mesh* whose recorded process is still alive."""
    if mesh.get("boot_id") != boot_id():
        return []
    return [row for row in mesh["processes"] if is_same(row["pid"], row["start_ticks"])]


def _signal_supervisor(files: MeshFiles, number: int) -> bool:
    mesh = files.read_mesh()
    if mesh.get("boot_id") != boot_id():
        return False
    return send_signal(mesh["supervisor"]["pid"], mesh["supervisor"]["start_ticks"], number)


def _wait_until_ready(
    files: MeshFiles, deadline_s: float, probes: Probes, warn: Callable[[str], None], *, ours: bool
) -> dict[str, Any]:
    """Return the mesh once it accepts a message and all its processes are ready.
    CommandFailed, with the last lines of the failing process, when it accepts none. Processes that
    are late at the deadline are passed to *warn*: the others serve without them.
    """
    why = "the supervisor has not started"
    while True:
        mesh = files.read_mesh()
        lock = files.try_lock()
        if lock >= 0:
            os.close(lock)
            raise _not_ready(files, mesh, "the supervisor ended", culprits=["supervisor"])
        failed = [row for row in mesh.get("processes", []) if row["state"] == "failed"]
        if ours and _is_hopeless(mesh.get("processes", [])):
            raise _not_ready(files, mesh, f"{failed[0]['name']}: {failed[0]['reason']}", culprits=[failed[0]["name"]])
        if mesh and not mesh["stopping"]:
            # A mesh that has accepted a message is sent no more probes of this kind.
            why = why and probes.why_not(mesh, files.root)
            late = "" if why else probes.who_is_late(mesh, files.root)
            is_over = time.monotonic() >= deadline_s
            if late and is_over:
                warn(f"{late}; see `{with_data_dir('ternmq status', files.root)}`.")
            if not why and (is_over or not late):
                return files.read_mesh()
        if time.monotonic() >= deadline_s:
            culprits = [
                row["name"] for row in mesh.get("processes", []) if row["restarts"] or row["state"] != "running"
            ]
            raise _not_ready(files, mesh, why, culprits=culprits or ["proxy-0", "broker-a-0"])
        time.sleep(LOOK_INTERVAL_S)


def _is_hopeless(rows: list[dict[str, Any]]) -> bool:
    """Return whether all processes of a role, or a majority of the brokers, have failed for good.
    A failed minority is only reported.
    """
    for role in {row["role"] for row in rows}:
        states = [row["state"] == "failed" for row in rows if row["role"] == role]
        lost = sum(states)
        if lost and (lost == len(states) or (role == "broker" and lost * 2 >= len(states))):
            return True
    return False


def _not_ready(files: MeshFiles, mesh: dict[str, Any], why: str, *, culprits: list[str]) -> CommandFailed:
    lines = notes(files, process_rows(files, mesh, set())) if mesh else []
    for name in culprits[:2]:
        lines += [f"--- {files.log(name)}", *files.last_lines(name, 12)]
    rows = ", ".join(f"{row['name']} {row['state']}" for row in mesh.get("processes", []))
    return CommandFailed(
        "The mesh does not accept messages", f"{why.rstrip('.')}. Processes: {rows or 'none'}.", lines=lines
    )
