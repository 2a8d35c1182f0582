"""The worker's memory budget as its subscriptions use it: who waits for room learns when there is
some.
"""

from collections.abc import Callable

from tern_client.worker.flow import Amount, FlowBudget


class WorkerMemory:
    """Owner of the budget of one running worker."""

    __slots__ = ("_waiting", "budget")

    def __init__(self, budget: FlowBudget) -> None:
        self.budget = budget
        self._waiting: list[Callable[[], None]] = []

    def share(self, number: int, has_room: Callable[[], None]) -> "MemoryShare":
        """Return the view of subscription *number*. *has_room* is called when room came back."""
        self._waiting.append(has_room)
        return MemoryShare(self, number)

    def tell(self) -> None:
        """Tell all subscriptions that there may be room."""
        for has_room in self._waiting:
            has_room()


class MemoryShare:
    """What one subscription reserves and holds. Owner: that subscription."""

    __slots__ = ("_memory", "_number")

    def __init__(self, memory: WorkerMemory, number: int) -> None:
        self._memory, self._number = memory, number

    def room(self) -> Amount:
        """Return the most that may be reserved now."""
        return self._memory.budget.room(self._number)

    def used(self) -> Amount:
        """Return what is reserved and held."""
        return self._memory.budget.used(self._number)

    def reserve(self, messages: int, size_bytes: int) -> None:
        """Reserve for a receive, within `room`."""
        self._memory.budget.reserve(self._number, Amount(messages, size_bytes))

    def give_back(self, messages: int, size_bytes: int) -> None:
        """Give back what a receive did not bring, or what is settled."""
        self._memory.budget.give_back(self._number, Amount(messages, size_bytes))
        self._memory.tell()
