"""All clients of a plan together, and how they share its operations."""

from typing import Protocol

from tests.sim.clients import transaction_clients, workload
from tests.sim.clients.keepers import Keeper
from tests.sim.clients.plan import (
    CALLED,
    FIFO_GROUP,
    KEPT_TOPIC,
    PULLED,
    RETRY_GROUP,
    RETRY_TOPIC,
    SOUGHT_GROUP,
    GroupPlan,
    Plan,
)
from tests.sim.clients.special_clients import AlarmProducer, Grower, OrderedProducer, Sender, Sexton
from tests.sim.clients.transaction_clients import Clerk, Inspector, Teller
from tests.sim.clients.workload import READERS, Consumer, Producer, Reader
from tests.sim.clients.writers import Writer

# What the kinds of clients issue of all operations, about.
_PRODUCERS, _CONSUMERS, _READERS = 0.30, 0.17, 0.11
_ORDERED, _ALARMS, _JOBS, _LETTERS = 0.06, 0.04, 0.03, 0.03
_DISPATCHERS, _WORKERS, _CLOCKS = 0.055, 0.06, 0.03
# Of these, what they begin with: a transaction, a claim, a look at the list. Ends, answers and the rest are as many again.
_TELLERS, _INSPECTORS, _CLERKS = 0.032, 0.05, 0.006
# Batches; each is some five operations.
_WRITERS = 0.012


class ClientContext(workload.ClientContext, transaction_clients.ClientContext, Protocol):
    """What all of them use."""


Client = Producer | Consumer | Keeper | Reader | Sender | Sexton | Grower | Teller | Inspector | Clerk | Writer


def make_clients(context: ClientContext) -> list[Client]:
    """The clients of the context's plan, in a fixed order, paced so that all operations take about `pace_s`."""
    plan = context.plan
    rate = plan.operations / plan.pace_s
    names = {group.name: group for group in plan.groups}
    producer_s = plan.producers / (_PRODUCERS * rate)
    clients: list[Client] = [Producer(context, f"p{number}", producer_s) for number in range(plan.producers)]
    clients += _consumers(context, plan, [names["billing"], names["audit"]], _CONSUMERS * rate)
    clients += _consumers(context, plan, [names[FIFO_GROUP]], _DISPATCHERS * rate)
    clients += _consumers(context, plan, [names[SOUGHT_GROUP]], _DISPATCHERS * rate)
    clients += _consumers(context, plan, [names[RETRY_GROUP]], _WORKERS * rate)
    clients += _consumers(context, plan, [names["clock"]], _CLOCKS * rate)
    reader_s = plan.readers / (_READERS * rate)
    clients += [Reader(context, f"{READERS}{number}", reader_s) for number in range(plan.readers)]
    clients += [OrderedProducer(context, f"o{number}", 2 / (_ORDERED * rate)) for number in range(2)]
    clients.append(AlarmProducer(context, "a0", 1 / (_ALARMS * rate)))
    clients.append(Producer(context, "j0", 1 / (_JOBS * rate), RETRY_TOPIC))
    clients.append(Producer(context, "l0", 1 / (_LETTERS * rate), KEPT_TOPIC))
    clients += [Keeper(context, f"keeper{number}") for number in range(2)]
    for number, group in enumerate((PULLED, CALLED)):
        clients.append(Teller(context, f"t{number}", 2 / (_TELLERS * rate), group))
    for number, group in enumerate((PULLED, "", PULLED, "")):
        clients.append(Inspector(context, f"i{number}", 4 / (_INSPECTORS * rate), group))
    clients.append(Clerk(context, "clerk", 1 / (_CLERKS * rate)))
    for number in range(2 * plan.queries):
        clients.append(Writer(context, f"w{number}", f"q{number % plan.queries}", plan.queries / (_WRITERS * rate)))
    if plan.redriven:
        clients.append(Sexton(context, "sexton", plan.redriven))
    if plan.grows_at_s:
        clients.append(Grower(context, "grower"))
    return clients


def _consumers(context: ClientContext, plan: Plan, groups: list[GroupPlan], rate: float) -> list[Consumer]:
    # A receive is settled every other time.
    mean_s = 1.5 * plan.consumers * len(groups) / rate
    return [
        Consumer(context, f"c{number}-{group.name}", group, mean_s)
        for group in groups
        for number in range(plan.consumers)
    ]
