"""The network between machines, as TCP has it: connections that are FIFO, that stall and break, and that two ends see break at two times.

Law: what is in flight on a connection that breaks is gone, on both sides. A cut direction stalls: nothing arrives until it is healed, or
until both ends give the connection up. Only the faults `duplicate` and `reorder` do what TCP never does: a frame twice (at once, or long
after what was said behind it), two frames swapped. The rules of tern_raft hold without TCP's help.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from tern_raft import PeerLinks
from tern_raft.frames import RAFT_CODE
from tern_remoting import ONE_WAY, Frame, Refusal
from tern_remoting.handshake import PeerName
from tern_wire.link.requests import Parts
from tests.sim.machines.machine import Machine
from tests.sim.machines.process import Process
from tests.sim.machines.scheduler import Scheduler

# As of the product: tern_remoting/dial.py, and SILENCE_MAX_S of tern_raft/links.py.
BACKOFF_MIN_S, BACKOFF_MAX_S, SETTLED_S = 0.05, 0.5, 1.0
GIVE_UP_S = 3.0
# While frames are duplicated, some copies come as late as this: after elections, when their connection still lives.
STALE_CHANCE, STALE_MIN_S, STALE_MAX_S = 0.1, 0.1, 4.0
# Clients live on a host of their own.
CLIENTS = "clients"


@dataclass(slots=True)
class Weather:
    """How the network is now. Chances are of each frame."""

    latency_s: float = 2e-4
    jitter_s: float = 2e-4
    late_chance: float = 0.01
    late_s: float = 0.01
    loss_chance: float = 0.0
    duplicate_chance: float = 0.0
    reorder_chance: float = 0.0


class SimLink:
    """One end of a connection: what tern_raft's PeerLinks takes for a Link."""

    def __init__(self, connection: "Connection", owner: Process, me: str, peer: str) -> None:
        self.connection, self.owner = connection, owner
        self.peer = PeerName("broker", peer)
        self.me = me
        self.is_ready = False
        self.closed = False
        self.queue: deque[tuple[float, bytes]] = deque()  # on its way to this end
        self.arrives_s = 0.0  # the last of them

    @property
    def buffered_bytes(self) -> int:
        """The kernel takes everything."""
        return 0

    def post(self, code: int, parts: Parts) -> bool:
        """Send to the other end."""
        assert code == RAFT_CODE
        if self.closed or not self.is_ready:
            return False
        self.connection.send(self, b"".join(parts))
        return True

    def close(self, _reason: str) -> None:
        """The product closes this end; the other one sees it a little later."""
        if not self.closed:
            self.connection.break_off()

    def refuse(self, _refusal: Refusal, reason: str) -> None:
        """The same, because of what the peer did."""
        self.connection.network.refused[reason] += 1
        self.close(reason)


class Connection:
    """A TCP connection between two processes."""

    def __init__(self, network: "Network", dialler: Process, acceptor: Process) -> None:
        self.network = network
        names = dialler.machine.name, acceptor.machine.name
        self.ends = (SimLink(self, dialler, *names), SimLink(self, acceptor, *reversed(names)))
        self.since_s = network.scheduler.now_s
        self.is_broken = False

    def other(self, end: SimLink) -> SimLink:
        """The end at the other side."""
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def send(self, sender: SimLink, body: bytes) -> None:
        """Put *body* on its way."""
        network, receiver = self.network, self.other(sender)
        network.frames += 1
        arrives_s = network.scheduler.now_s + network.latency_s()
        arrives_s = max(arrives_s, receiver.arrives_s)
        receiver.arrives_s = arrives_s
        queue, weather, chance = receiver.queue, network.weather, network.rng.random
        if weather.reorder_chance and queue and chance() < weather.reorder_chance:
            last = queue.pop()
            queue.append((last[0], body))
            body = last[1]
            network.counts["reorder"] += 1
        queue.append((arrives_s, body))
        network.scheduler.at(arrives_s, self.deliver, receiver)
        if weather.duplicate_chance and chance() < weather.duplicate_chance:
            queue.append((arrives_s, body))
            network.scheduler.at(arrives_s, self.deliver, receiver)
            network.counts["duplicate"] += 1
        if weather.duplicate_chance and chance() < STALE_CHANCE:
            stale_s = network.scheduler.now_s + network.rng.uniform(STALE_MIN_S, STALE_MAX_S)
            network.scheduler.at(stale_s, self._deliver_stale, receiver, body)
            network.counts["stale"] += 1

    def _deliver_stale(self, end: SimLink, body: bytes) -> None:
        if not self.is_broken and not self.network.is_cut(end.peer.name, end.me):
            end.owner.run(self._receive, end, body)

    def deliver(self, end: SimLink) -> None:
        """The first frame for *end* may have arrived."""
        network = self.network
        if self.is_broken or network.is_cut(end.peer.name, end.me):
            return  # `heal` asks again
        if end.queue and end.queue[0][0] <= network.scheduler.now_s:
            end.owner.run(self._hand_over, end)

    def _hand_over(self, end: SimLink) -> None:
        # It may have waited in a paused process, or for one that was busy; then others are in line before it.
        if not self.is_broken and end.queue and not end.closed and end.is_ready:
            self._receive(end, end.queue.popleft()[1])

    def _receive(self, end: SimLink, body: bytes) -> None:
        links = self.network.links.get(end.owner)
        if links is None or not end.is_ready or self.is_broken:
            return
        try:
            links._on_frame(end, Frame(RAFT_CODE, 0, ONE_WAY, "", body))  # type: ignore[arg-type]
        except Exception as error:
            # tern_remoting's Link does the same: whatever a callback raises closes this link, and is logged.
            end.owner.machine.unhandled(end.owner, error)
            self.break_off()

    def stir(self, end: SimLink) -> None:
        """What stalled on its way to *end* arrives now."""
        now_s = self.network.scheduler.now_s
        for _ in range(len(end.queue)):
            self.network.scheduler.at(now_s, self.deliver, end)

    def break_off(self) -> None:
        """A reset, or an end that is gone: each end hears of it when it can."""
        if self.is_broken:
            return
        self.is_broken = True
        network = self.network
        network.connections.pop(frozenset((self.ends[0].me, self.ends[1].me)), None)
        for end in self.ends:
            end.queue.clear()
            end.closed = True
            delay_s = (
                network.latency_s() if not network.is_cut(end.peer.name, end.me) else network.rng.uniform(0.1, 2.0)
            )
            network.scheduler.after(delay_s, end.owner.run, self._lost, end)
        network.dial_later(
            self.ends[0].owner, self.ends[1].me, settled=network.scheduler.now_s - self.since_s > SETTLED_S
        )

    def _lost(self, end: SimLink) -> None:
        links = self.network.links.get(end.owner)
        if links is not None and end.is_ready:
            links._on_lost(end)  # type: ignore[arg-type]

    def ready(self, end: SimLink) -> None:
        """The handshake is over at this end."""
        links = self.network.links.get(end.owner)
        if links is not None and not end.closed:
            end.is_ready = True
            if end is self.ends[0]:
                links._dialled(end.peer.name, end)  # type: ignore[arg-type]
            else:
                links._accepted(end)  # type: ignore[arg-type]
            # What was said behind the other end's handshake may have come while this process was busy with its own.
            for arrives_s, _ in end.queue:
                self.network.scheduler.at(max(arrives_s, self.network.scheduler.now_s), self.deliver, end)


class Network:
    """All connections between brokers, and the cuts. Owner: the world."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, machines: dict[str, Machine]) -> None:
        self.scheduler, self.rng, self.machines = scheduler, rng, machines
        self.weather = Weather()
        self.links: dict[Process, PeerLinks] = {}
        self.connections: dict[frozenset[str], Connection] = {}
        self.frames = 0
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._heard: list[Callable[[], None]] = []  # of clients whose frames wait for a cut to be healed

    def latency_s(self) -> float:
        """Of one frame, now; a lost one is sent again by TCP after 200 ms."""
        weather, chance = self.weather, self.rng.random()
        delay_s = weather.latency_s + weather.jitter_s * chance
        if chance < weather.late_chance:
            delay_s += weather.late_s * self.rng.random()
        if weather.loss_chance and self.rng.random() < weather.loss_chance:
            delay_s += 0.2 * (1 + int(self.rng.random() * 2))
            self.counts["loss"] += 1
        return delay_s

    # Processes ---------------------------------------------------------------------------------------------------
    def listen(self, process: Process, links: PeerLinks) -> None:
        """*process* is up: it dials the peers with smaller names, the others dial it."""
        self.links[process] = links
        process.on_end.append(lambda: self.close(process))
        for peer in self.machines:
            if peer < process.machine.name:
                self._dial(process, peer, BACKOFF_MIN_S)

    def close(self, process: Process) -> None:
        """*process* is gone, or has closed all its links."""
        self.links.pop(process, None)
        for connection in list(self.connections.values()):
            if any(end.owner is process for end in connection.ends):
                connection.break_off()

    def dial_later(self, dialler: Process, peer: str, *, settled: bool) -> None:
        """The redialer of *dialler* begins again."""
        backoff_s = BACKOFF_MIN_S if settled else 4 * BACKOFF_MIN_S
        self.scheduler.after(backoff_s * self.rng.uniform(0.5, 1.0), self._dial, dialler, peer, backoff_s)

    def _dial(self, dialler: Process, peer: str, backoff_s: float) -> None:
        if dialler.has_ended or dialler not in self.links:
            return
        me, machine = dialler.machine.name, self.machines[peer]
        pair = frozenset((me, peer))
        acceptor = machine.process
        if pair in self.connections:
            return
        is_open = acceptor is not None and acceptor in self.links and not machine.is_paused
        if not is_open or dialler.machine.is_paused or self.is_cut(me, peer) or self.is_cut(peer, me):
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            self.scheduler.after(backoff_s * self.rng.uniform(0.5, 1.0), self._dial, dialler, peer, backoff_s)
            return
        assert acceptor is not None
        connection = self.connections[pair] = Connection(self, dialler, acceptor)
        for end in connection.ends:
            ready_s = self.scheduler.now_s + 2 * self.latency_s()
            end.arrives_s = ready_s
            self.scheduler.at(ready_s, end.owner.run, connection.ready, end)

    # Cuts --------------------------------------------------------------------------------------------------------
    def is_cut(self, sender: str, receiver: str) -> bool:
        """Whether nothing gets from *sender* to *receiver*."""
        return bool(self._cuts) and self._cuts.get((sender, receiver), 0) > 0

    def cut(self, *directions: tuple[str, str], breaks: bool = False) -> Callable[[], None]:
        """Cut (sender, receiver) pairs; call what is returned to heal them. *breaks*: connections are reset at once."""
        for direction in directions:
            self._cuts[direction] += 1
        if breaks:
            for sender, receiver in directions:
                self.reset(sender, receiver)
        since_s = self.scheduler.now_s
        healed = False
        self.scheduler.after(GIVE_UP_S, self._give_up, directions, lambda: healed)

        def heal() -> None:
            nonlocal healed
            if healed:
                return
            healed = True
            for direction in directions:
                self._cuts[direction] -= 1
            self._heal(directions, self.scheduler.now_s - since_s)

        return heal

    def _give_up(self, directions: tuple[tuple[str, str], ...], is_healed: Callable[[], bool]) -> None:
        """Whoever has sent something that nobody acknowledged takes its connection for dead."""
        if not is_healed():
            for sender, receiver in directions:
                self.reset(sender, receiver)

    def _heal(self, directions: tuple[tuple[str, str], ...], lasted_s: float) -> None:
        for sender, receiver in directions:
            connection = self.connections.get(frozenset((sender, receiver)))
            if connection is None:
                continue
            # TCP probes a stalled connection ever more rarely; what has something to send may have been given up meanwhile.
            if lasted_s > GIVE_UP_S or self.rng.random() < 0.3:
                connection.break_off()
            else:
                for end in connection.ends:
                    connection.stir(end)
        waiting, self._heard = self._heard, []
        for callback in waiting:
            self.scheduler.after(self.latency_s(), callback)

    def when_healed(self, callback: Callable[[], None]) -> None:
        """Call *callback* after the next cut was healed (it then looks for itself)."""
        self._heard.append(callback)

    def reset(self, one: str, two: str) -> bool:
        """Break the connection between two brokers, if there is one."""
        connection = self.connections.get(frozenset((one, two)))
        if connection is not None:
            connection.break_off()
        return connection is not None
