"""Money under harm: two banks transfer through transactional messages while producers, the txn-checker and the leader are killed.

In each trial the txn-checker is killed, then the leader; the producers are killed all the time, in the middle of transfers. At the end
the books of both banks and the broker's counts must agree, message by message and to the cent (proof.py).
"""

import signal

from tests.chaos.kills import all_back
from tests.chaos.rig import Rig
from tests.chaos.transfer.proof import differences
from tests.chaos.transfer.run import Transfers

# Each of the two producers is killed about once in a trial.
TRANSFERS_PER_TRIAL = 2_400
# When, of a trial's transfers, the checker and the leader are killed.
CHECKER_KILL_AT, LEADER_KILL_AT = 0.3, 0.6
CHECKER = "txn-checker-0"
SETTLED_WITHIN_S = 120.0


async def transfer(rig: Rig) -> None:
    """Kill the txn-checker and the leader, again and again, while money moves; every difference in the books is a failure."""
    endpoints = [f"http://{host}:{port}" for host, port in rig.cluster.proxies]
    transfers = rig.asked.trials * TRANSFERS_PER_TRIAL
    folder = rig.cluster.directory / "transfers"
    run = Transfers(folder, endpoints, transfers=transfers, seed=rig.asked.seed, by_callback=True)

    async def settled(trial: float) -> None:
        wanted = int(trial * TRANSFERS_PER_TRIAL)
        what = f"{wanted} transfers are settled"
        await rig.cluster.until(lambda: run.settled >= wanted, within_s=SETTLED_WITHIN_S, what=what)

    async def harm() -> None:
        for trial in range(rig.asked.trials):
            await settled(trial + CHECKER_KILL_AT)
            rig.cluster.signal(CHECKER, signal.SIGKILL)
            await settled(trial + LEADER_KILL_AT)
            leader = await rig.cluster.leader()
            rig.cluster.signal(leader, signal.SIGKILL)
            await rig.accepted_again()
            caught_up_s = await all_back(rig)
            rig.note({"killed": leader, "settled": run.settled, "caught_up_s": round(caught_up_s, 2)})

    rig.go_on()
    books = await run.move(harm)
    rig.figures["transfers"] = {
        "debited": len(books.debits),
        "refused": books.refused,
        "messages": len(books.deliveries),
        "redelivered": sum(each.deliveries for each in books.deliveries) - len(books.deliveries),
        "moved_cents": sum(books.balances_b.values()),
        "checks": run.stats["checks"],
        "producers_killed": {str(stage): count for stage, count in sorted(run.crashes.items())},
    }
    for difference in differences(books):
        rig.fail(difference)
