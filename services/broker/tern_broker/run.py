"""The broker's process: sockets first, then files, then the group; and back in the opposite order."""

import asyncio
import logging
import random
import sys

from tern_broker.config import BrokerConfig
from tern_broker.disk_use import measure_disk
from tern_broker.engine import Engine
from tern_broker.http_loop import HttpLoop
from tern_broker.link_door import LinkDoor
from tern_broker.standby import stand_by
from tern_raft import PeerLinks, ProcessRuntime
from tern_remoting import Frame, Link, LinkServer, PortInUse
from tern_service import open_socket, refuse, run_service
from tern_store import LogRot, StoreError
from tern_store.retention import Pressure
from tern_wire.limits import CONNECTIONS_MAX, DISK_FREE_MIN_BYTES, FRAME_SIZE_MAX_BYTES
from tern_wire.route import Registration, TopicRoute

log = logging.getLogger(__name__)
SWEEP_PERIOD_S = 0.05
DISK_CHECK_PERIOD_S = 1.0
# The disk thread needs the interpreter for a few us after each fdatasync: it must not wait 5 ms for it.
SWITCH_INTERVAL_S = 0.0005


def run(config: BrokerConfig) -> None:
    """Run one node until SIGTERM or SIGINT. Exit code 78 for settings, directories and ports that cannot be used."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        key = config.read_key()
    except ValueError as error:
        refuse(str(error))
    sock = open_socket(config.listen, config.http_port, "--http-port")
    rng = random.Random()  # noqa: S311 (which record to check, when to stand: no secrets)

    async def main(stop: asyncio.Event) -> None:
        http: HttpLoop | None = None
        runtime = ProcessRuntime()
        try:
            links = peer_links(config, key, rng)
            engine = Engine(
                config,
                runtime=runtime,
                links=links,
                on_change=lambda: http.changed() if http is not None else None,
            )
        except LogRot as rot:
            await stand_by(config, sock, rot, stop)
            return
        except StoreError as error:
            refuse(str(error))
        door = LinkDoor(config, engine, rng=rng, monotonic=runtime.monotonic)
        http = HttpLoop(
            config,
            sock,
            status=lambda: engine.status() | {"refuses_sends": door.disk_full},
            trim=engine.trim_now,
            registration=lambda: _registration(config, engine),
        )
        http.start()
        server = _link_server(config, key, door)
        try:
            await server.start()
            await links.start(engine.raft.transport)
            engine.begin()
        except PortInUse as error:
            refuse(f"{error}; choose others with --link-port, --raft-port.")
        log.info("broker is up", extra={"node": config.node, "link_port": config.link_port, "term": engine.raft.term})
        upkeep = asyncio.create_task(_upkeep(config, engine, door))
        await stop.wait()
        # Name servers first, so that proxies stop asking; then the link; then the group.
        await asyncio.to_thread(http.stop)
        upkeep.cancel()
        await server.stop()
        await links.stop()
        finished = asyncio.Event()
        engine.finish(finished.set)
        await finished.wait()
        log.info("broker has stopped", extra={"node": config.node, "applied": engine.raft.applied_index})

    run_service(main)


def peer_links(config: BrokerConfig, key: bytes, rng: random.Random) -> PeerLinks:
    """The sockets between the members of the group."""
    return PeerLinks(config.node, config.members(), key=key, group_id=config.group_id, listen=config.listen, rng=rng)


def _link_server(config: BrokerConfig, key: bytes, door: LinkDoor) -> LinkServer:
    def on_frame(link: Link, frame: Frame) -> None:
        if link.peer.role != "proxy":
            link.close("only proxies speak here")
        else:
            door.on_frame(link, frame)

    return LinkServer(
        config.listen,
        config.link_port,
        key=key,
        name=config.node,
        group_id=config.cluster,
        on_frame=on_frame,
        on_ready=_ignore,
        on_lost=_ignore,
        frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        connections_max=CONNECTIONS_MAX,
    )


def _ignore(*_: object) -> None:
    """Proxies come and go; nothing is kept for them."""


async def _upkeep(config: BrokerConfig, engine: Engine, door: LinkDoor) -> None:
    """Sweep deadlines; look at the disk once a second."""
    checked_s = 0.0
    loop = asyncio.get_running_loop()
    while True:
        door.sweep()
        if loop.time() - checked_s > DISK_CHECK_PERIOD_S:
            checked_s = loop.time()
            disk, free = await asyncio.to_thread(measure_disk, config.data_dir, config.disk_budget_bytes)
            engine.trimmer.disk_used(disk)
            is_full = (
                free < DISK_FREE_MIN_BYTES
                or engine.trimmer.pressure is Pressure.REFUSE
                or engine.store.log.is_on_reserve
            )
            if door.disk_full != is_full:
                door.disk_full = is_full
                facts = {"free_bytes": free, "used_share": round(disk.ratio, 3), "refuses_sends": is_full}
                log.warning("disk", extra=facts)
        await asyncio.sleep(SWEEP_PERIOD_S)


def _registration(config: BrokerConfig, engine: Engine) -> Registration:
    """This node as name servers should know it now; followers tell no topics."""
    serving = engine.raft.is_serving
    topics = {
        topic.name: TopicRoute(topic_id=topic.topic_id, queues=topic.queues)
        for topic in (engine.state.names.topics.values() if serving else ())
    }
    return Registration(
        cluster=config.cluster,
        broker_group=config.broker_group,
        node=config.node,
        link=f"{config.listen}:{config.link_port}",
        http=f"{config.listen}:{config.http_port}",
        is_leader=serving,
        term=engine.raft.term,
        group_size=len(config.members()),
        data_version=engine.state.data_version,
        topics=topics,
    )
