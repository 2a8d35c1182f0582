"""`python -m tests.chaos SCENARIO`: real brokers killed, paused, cut off, wiped and damaged under load; every promise checked.

Progress goes to standard error; the last line of standard output is one JSON document with all figures. Exit 1 when anything that must
hold did not. The same --seed chooses the same victims, lengths and bodies; what the machine makes of them is its own affair.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tern_cli.mesh.plan import member_names
from tests.chaos import damages, endurance, kills, partitions
from tests.chaos.cluster import Cluster
from tests.chaos.consumers import Consumers
from tests.chaos.load import Load
from tests.chaos.namespaces import Namespaces
from tests.chaos.network import may_make_namespaces
from tests.chaos.rig import Asked, Rig
from tests.chaos.transfer.scenario import transfer
from tests.support.mesh.mesh import free_port_base

RETENTION_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a scenario runs on."""

    run: Callable[[Rig], Awaitable[None]]
    trials: int
    cuts: bool = False
    senders: int = 16
    batch: int = 16
    body_size_bytes: int = 256
    is_keyed: bool = True
    consumers: int = 4
    proxies: int = 1
    pinned: int = 0
    segment_size_bytes: int = 16 << 20
    options: tuple[str, ...] = ()


SCENARIOS = {
    "kill-leader": Scenario(run=kills.kill_leader, trials=50),
    "pause-leader": Scenario(run=kills.pause_leader, trials=10, senders=18, proxies=2, pinned=2),
    "kill-all": Scenario(run=kills.kill_all, trials=20),
    "partition": Scenario(run=partitions.partition, trials=5, cuts=True),
    "one-way": Scenario(run=partitions.one_way, trials=4, cuts=True),
    "bridge": Scenario(run=partitions.bridge, trials=4, cuts=True),
    "flapping": Scenario(run=partitions.flapping, trials=3, cuts=True),
    "wipe": Scenario(run=damages.wipe, trials=1, body_size_bytes=4096, consumers=0),
    "rot": Scenario(run=damages.rot, trials=2, body_size_bytes=4096),
    "rot-last": Scenario(run=damages.rot_last, trials=2),
    "transfer": Scenario(run=transfer, trials=5, senders=4, batch=4, consumers=1),
    "endurance": Scenario(
        run=endurance.endurance,
        trials=1,
        batch=64,
        body_size_bytes=1024,
        is_keyed=False,
        consumers=0,
        segment_size_bytes=128 << 20,
        options=("--retention-bytes", str(RETENTION_BYTES)),
    ),
}


def asked_of(arguments: list[str]) -> Asked:
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Real brokers under harm and load.")
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--trials", type=int, default=0, help="how often harm is done; 0: as many as the bar asks for")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--minutes", type=float, default=10.0, help="of endurance")
    parser.add_argument("--fill-mib", type=int, default=512, help="log in each broker before a wipe")
    parser.add_argument("--senders", type=int, default=0)
    parser.add_argument("--dir", type=Path, default=Path(".tern/chaos"), help="a real disk; /tmp may be memory")
    parser.add_argument("--keep", action="store_true", help="leave data and logs")
    parser.add_argument("--network", choices=("best", "relays", "namespaces"), default="best")
    parser.add_argument("--fault-s", type=float, default=0.0, help="length of a pause or cut; 0: the scenario's own")
    parser.add_argument("--no-bars", action="store_true", help="report speeds, but do not judge them")
    found = parser.parse_args(arguments)
    return Asked(
        scenario=found.scenario,
        trials=found.trials or SCENARIOS[found.scenario].trials,
        seed=found.seed,
        minutes=found.minutes,
        fill_mib=found.fill_mib,
        senders=found.senders or SCENARIOS[found.scenario].senders,
        directory=found.dir,
        keep=found.keep,
        network=found.network,
        fault_s=found.fault_s,
        judges_speed=not found.no_bars,
    )


def make_rig(asked: Asked) -> Rig:
    """Cluster and load of a scenario, not started."""
    scenario = SCENARIOS[asked.scenario]
    rng = random.Random(asked.seed)
    asked.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{asked.scenario}-", dir=asked.directory)).absolute()
    network, use_relays = None, False
    if scenario.cuts:
        use_relays = asked.network == "relays" or (asked.network == "best" and not may_make_namespaces())
        network = None if use_relays else Namespaces(member_names(3))
    cluster = Cluster(
        directory,
        port_base=free_port_base(random.Random()),
        network=network,
        use_relays=use_relays,
        options=scenario.options,
        segment_size_bytes=scenario.segment_size_bytes,
        proxies=scenario.proxies,
    )
    load = Load(
        cluster.proxies,
        seed=asked.seed,
        senders=asked.senders,
        batch=scenario.batch,
        body_size_bytes=scenario.body_size_bytes,
        is_keyed=scenario.is_keyed,
        pinned=scenario.pinned,
    )
    consumers = Consumers(load, count=scenario.consumers) if scenario.consumers else None
    return Rig(asked=asked, cluster=cluster, rng=rng, load=load, consumers=consumers)


async def run(rig: Rig) -> None:
    """The scenario from beginning to end, cleaned up after whatever happens."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await rig.begin()
        await SCENARIOS[rig.asked.scenario].run(rig)
        await rig.finish()
    except asyncio.CancelledError:
        rig.fail("interrupted")
    except Exception as error:
        rig.fail(f"{type(error).__name__}: {error}")
        traceback.print_exc()
    finally:
        if not rig.is_ok:
            print(rig.tails(), file=sys.stderr)
        await rig.cluster.stop()


def main() -> int:
    """Run one scenario; the exit code."""
    asked = asked_of(sys.argv[1:])
    rig = make_rig(asked)
    try:
        asyncio.run(run(rig))
    finally:
        rig.cluster.close(keep=asked.keep)
        if not asked.keep:
            shutil.rmtree(rig.cluster.directory, ignore_errors=True)
    print(json.dumps(rig.report()))
    return 0 if rig.is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
