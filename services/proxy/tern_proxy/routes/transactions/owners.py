"""Whose a transaction is: the producer group that its id has as a number, by name, so that rights can be asked about.

A number is never given to another producer group of its broker group, so what was found out stays true. Owner of the table: the event loop.
"""

from tern_proxy.access.authorization import OPEN, Admission
from tern_proxy.proxy import Proxy
from tern_wire.errors import Forbidden, TernError, TransactionUnknown
from tern_wire.limits import PRODUCER_GROUPS_MAX
from tern_wire.link.transactions import DescribeTransaction
from tern_wire.principals.principals import PRODUCER_GROUP
from tern_wire.transactions import TransactionId

Names = dict[tuple[str, int], str]


def remember_owner(proxy: Proxy, broker_group: str, producer_group_id: int, name: str) -> None:
    """A begin has told the name."""
    known = proxy.producer_group_names
    if len(known) >= 4 * PRODUCER_GROUPS_MAX:
        known.clear()
    known[broker_group, producer_group_id] = name


async def require_of_transaction(proxy: Proxy, admission: Admission, action: str, transaction: TransactionId) -> None:
    """TransactionUnknown, as of one that is not there, unless its producer group may be seen; Forbidden unless *action* may be done to it."""
    if admission is OPEN:
        return
    place = (transaction.broker_group, transaction.producer_group_id)
    name = proxy.producer_group_names.get(place)
    if name is None:
        asked = DescribeTransaction(number=transaction.number, producer_group_id=transaction.producer_group_id)
        found, _ = await proxy.group(transaction.broker_group).link.ask(asked, is_repeatable=True)
        name = found.transaction.producer_group
        if not name:
            raise TransactionUnknown()  # its producer group is gone, and with it everybody's right to it
        remember_owner(proxy, *place, name)
    try:
        admission.require(action, PRODUCER_GROUP, name)
    except Forbidden:
        raise
    except TernError as error:
        raise TransactionUnknown() from error
