"""The broker's process: sockets first, then files, then the group; and back in the opposite order.

A node whose log cannot be used stands by until it has copied its leader's, then goes on in the same
process.
"""

import asyncio
import logging
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.dispatcher import CHECKER_REQUESTS, LinkDispatcher
from tern_broker.node.descriptors import need_broker_descriptors
from tern_broker.node.heartbeat import Described
from tern_broker.node.http_loop import HttpLoop
from tern_broker.node.loop_gauge import GaugedListener, GaugedRuntime, LoopGauge
from tern_broker.node.node_tls import NO_TLS, NodeTls
from tern_broker.node.rebuild_offer import rebuild_offer
from tern_broker.node.standby import stand_by
from tern_broker.node.status import engine_status
from tern_broker.upkeep.disk_use import measure_disk
from tern_broker.waiting.leadership_notices import LeadershipNotices
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, PeerLinks, ProcessRuntime, RaftNode, Watchdog
from tern_remoting import Frame, Link, LinkServer, PortInUse, Refusal
from tern_security.peer_identity import BROKER
from tern_service import open_socket, refuse, release_free_memory, run_service
from tern_store import DirectoryLock, LogRot, StoreError, SyncLost, finish_swap
from tern_store.retention import Pressure
from tern_tasks import keep_running
from tern_wire.limits import CONNECTIONS_MAX, DISK_FREE_MIN_BYTES, FRAME_SIZE_MAX_BYTES
from tern_wire.routing.route import Registration, TopicRoute

log = logging.getLogger(__name__)
DISK_CHECK_PERIOD_S = 1.0
# The disk thread needs the interpreter for a few us after each fdatasync: it must not wait 5 ms for
# it.
SWITCH_INTERVAL_S = 0.0005


def run(config: BrokerConfig) -> None:
    """Run one node until SIGTERM or SIGINT. Exit code 78 for settings, directories and ports that
    cannot be used.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    need_broker_descriptors(config)
    try:
        key = config.read_key()
    except ValueError as error:
        refuse(str(error))
    tls = NodeTls.of(config.open_security(BROKER, config.listen, name=config.node))
    sock = open_socket(config.listen, config.http_port, "--http-port", is_protected=True)
    # For port 0 others get the port that was chosen.
    config = replace(config, http_port=sock.getsockname()[1])

    async def main(stop: asyncio.Event) -> None:
        try:
            lock = DirectoryLock.acquire(config.data_dir)
            node = await _open(config, key, tls, sock, stop)
            if node is not None:
                await node.start()
                await stop.wait()
                await node.stop()
        except StoreError as error:
            refuse(str(error))
        except PortInUse as error:
            refuse(f"{error}; choose others with --link-port, --raft-port.")
        except SyncLost as error:
            log.critical("the disk does not keep what is written", extra={"error": str(error)})
            sys.exit(EXIT_FSYNC_FAILED)
        except OSError as error:
            # The supervisor restarts the process: the missing resource may be available then.
            log.critical("this node cannot start now", extra={"error": str(error)})
            sys.exit(EXIT_BROKEN)
        lock.release()

    run_service(main)


async def _open(
    config: BrokerConfig, key: bytes, tls: NodeTls, sock: socket.socket, stop: asyncio.Event
) -> "_Node | None":
    """Return a node on the directory's content, or on a copy of the leader's log; None if it was
    stopped before.
    """
    runtime = ProcessRuntime()
    while True:
        finish_swap(config.data_dir)
        try:
            return _Node(config, key, tls, sock, runtime)
        except LogRot as rot:
            reason = rot
        links = peer_links(config, key, tls)
        told: Callable[[str], int] = _nobody_told
        try:
            if len(config.members()) > 1:
                # Acknowledged entries may be lost with its log: from here on it is no member until
                # the group readmits it.
                RaftNode.forget_votes(config.raft(), incarnation=runtime.new_id(), needs_copy=True)
                greeter = RaftNode.greeter(config.raft(), links)
                await links.start(greeter)
                told = greeter.http_port_of
            if not await stand_by(config, sock, reason, stop, key=key, told_http_port=told, tls=tls):
                return None
            RaftNode.forget_votes(config.raft(), incarnation=runtime.new_id(), needs_copy=False)
        except PortInUse:
            raise
        except SyncLost as error:
            log.critical("the disk does not keep what is written", extra={"error": str(error)})
            runtime.end(EXIT_FSYNC_FAILED)
        finally:
            await links.stop()


def _nobody_told(_peer: str) -> int:
    return 0


class _Node:
    """Engine, servers and upkeep of one node. Owner: the core loop."""

    def __init__(
        self, config: BrokerConfig, key: bytes, tls: NodeTls, sock: socket.socket, runtime: ProcessRuntime
    ) -> None:
        """Raise LogRot, and other StoreErrors, if the directory cannot be used."""
        rng = random.Random()  # noqa: S311 (which record to check: no secrets)
        self._config, self._runtime, self._tls = config, runtime, tls
        self._gauge = gauge = LoopGauge(call_soon=runtime.call_soon, monotonic=runtime.monotonic, cpu=time.thread_time)
        self._links = peer_links(config, key, tls)
        gauged = GaugedRuntime(runtime, gauge.mark)
        self._engine = engine = Engine(config, runtime=gauged, links=self._links, on_change=self._changed)
        self._dispatcher = dispatcher = LinkDispatcher(config, engine, key=key, rng=rng, monotonic=runtime.monotonic)
        notices = LeadershipNotices(config.node, lambda: (engine.raft.term, engine.raft.is_serving))
        engine.on_role.append(notices.role_changed)
        self._server = _link_server(config, key, tls, dispatcher, notices, gauge)
        engine.proposer.flush_answers = self._server.flush
        self._http = HttpLoop(
            config,
            sock,
            status=self._status,
            trim=engine.trim_now,
            transfer=engine.transfer,
            choose=engine.comparer.choose,
            pass_over=engine.poison.ask,
            rebuild=rebuild_offer(config, engine, key=key),
            registration=lambda: _registration(config, engine),
            mark=gauge.mark,
            tls=tls,
        )

    async def start(self) -> None:
        """Open the ports, join the group. PortInUse."""
        self._http.start()
        await self._server.start()
        await self._links.start(GaugedListener(self._engine.raft.transport, self._gauge.mark))
        self._engine.begin()
        log.info(
            "broker is up",
            extra={"node": self._config.node, "link_port": self._config.link_port, "term": self._engine.raft.term},
        )
        self._tls.security.announce()
        self._watchdog = Watchdog(lambda: self._runtime.end(EXIT_BROKEN))
        self._engine.on_clock.append(self._watchdog.beat)
        self._upkeep = keep_running("watch disk", self._watch_disk)

    async def stop(self) -> None:
        """Stop: first the registration, so that proxies send no more requests; then the link; then
        the group.
        """
        self._watchdog.stop()
        await asyncio.to_thread(self._http.stop)
        self._upkeep.cancel()
        await self._server.stop()
        await self._links.stop()
        finished = asyncio.Event()
        self._engine.finish(finished.set)
        await finished.wait()
        log.info("broker has stopped", extra={"node": self._config.node, "applied": self._engine.raft.applied_index})

    def _changed(self) -> None:
        self._http.changed()

    def _status(self) -> dict[str, object]:
        return engine_status(self._engine, self._config) | {
            "core_loop": self._gauge.describe(),
            "refuses_sends": self._dispatcher.sends.disk_full,
            "refusals": {"raft": self._links.refusals(), "link": self._server.refusals()},
        }

    async def _watch_disk(self) -> None:
        """Measure the disk once a second."""
        engine, dispatcher = self._engine, self._dispatcher
        is_new = True
        while True:
            disk, free = await asyncio.to_thread(measure_disk, self._config.data_dir, self._config.disk_budget_bytes)
            engine.disk_used(disk)
            is_full = (
                free < DISK_FREE_MIN_BYTES
                or engine.trimmer.pressure is Pressure.REFUSE
                or engine.store.log.is_on_reserve
            )
            if dispatcher.sends.disk_full != is_full:
                dispatcher.sends.disk_full = is_full
                facts = {"free_bytes": free, "used_share": round(disk.ratio, 3), "refuses_sends": is_full}
                log.warning("disk", extra=facts)
            await asyncio.sleep(DISK_CHECK_PERIOD_S)
            if is_new:  # everything is imported and recovered by now
                release_free_memory()
                is_new = False


def peer_links(config: BrokerConfig, key: bytes, tls: NodeTls = NO_TLS) -> PeerLinks:
    """Return the sockets between the members of the group."""
    rng = random.Random()  # noqa: S311 (when to dial again: no secret)
    return PeerLinks(
        config.node,
        config.members(),
        key=key,
        group_id=config.group_id,
        listen=config.listen,
        rng=rng,
        listener_tls=tls.raft_listener,
        dialler_tls=tls.raft_dialler,
    )


def _link_server(
    config: BrokerConfig,
    key: bytes,
    tls: NodeTls,
    dispatcher: LinkDispatcher,
    notices: LeadershipNotices,
    gauge: LoopGauge,
) -> LinkServer:
    def on_frame(link: Link, frame: Frame) -> None:
        gauge.mark()
        role = link.peer.role
        if role == "proxy" or (role == "checker" and frame.code in CHECKER_REQUESTS):
            dispatcher.on_frame(link, frame)
        else:
            link.refuse(Refusal.STRANGER, "this port is for proxies, and for requests of checkers about checks")

    return LinkServer(
        config.listen,
        config.link_port,
        key=key,
        name=config.node,
        group_id=config.cluster,
        on_frame=on_frame,
        on_ready=notices.opened,
        on_lost=notices.lost,
        frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        connections_max=CONNECTIONS_MAX,
        tls=tls.link_listener,
    )


def _registration(config: BrokerConfig, engine: Engine) -> Described:
    """Return this node's registration for name servers; followers send no topics.

    Runs in the core loop; anything that takes long is left to the HTTP loop.
    """
    serving = engine.raft.is_serving
    hosted = tuple(engine.state.names.topics.values()) if serving else ()
    registration = Registration(
        cluster=config.cluster,
        broker_group=config.broker_group,
        node=config.node,
        link=config.address(config.link_port),
        http=config.address(config.http_port),
        is_leader=serving,
        term=engine.raft.term,
        group_size=len(config.members()),
        data_version=engine.state.metadata.data_version,
        has_topics=not serving,
    )

    def topics() -> dict[str, TopicRoute]:
        return {
            topic.name: TopicRoute(
                topic_id=topic.topic_id,
                queues=topic.queues,
                type=topic.kind,
                perm=topic.perm,
                placement=topic.placement_text,
            )
            for topic in hosted
        }

    return Described(registration=registration, topics=topics)
