"""Names of the producer groups of transactions, by the number in the transaction's id, for checks
of rights.

A number is never reused by another producer group of its broker group, so entries stay valid. Owner
of the table: the event loop.
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
    """Remember the name from a begin."""
    known = proxy.producer_group_names
    if len(known) >= 4 * PRODUCER_GROUPS_MAX:
        known.clear()
    known[broker_group, producer_group_id] = name


async def require_of_transaction(proxy: Proxy, admission: Admission, action: str, transaction: TransactionId) -> None:
    """Raise TransactionUnknown, as for a missing one, unless the caller may see its producer group.

    Raise Forbidden unless the caller may do *action* on it.
    """
    if admission is OPEN:
        return
    place = (transaction.broker_group, transaction.producer_group_id)
    name = proxy.producer_group_names.get(place)
    if name is None:
        asked = DescribeTransaction(number=transaction.number, producer_group_id=transaction.producer_group_id)
        found, _ = await proxy.group(transaction.broker_group).link.ask(asked, is_repeatable=True)
        name = found.transaction.producer_group
        if not name:
            raise TransactionUnknown()  # its producer group is gone, and with it all rights to it
        remember_owner(proxy, *place, name)
    try:
        admission.require(action, PRODUCER_GROUP, name)
    except Forbidden:
        raise
    except TernError as error:
        raise TransactionUnknown() from error
