"""What an application asks of its outbox's rows, for outboxes whose database is called without
`await`. AsyncOutbox has the same calls, awaited.
"""

from collections.abc import Sequence

from tern_client.outbox import operations
from tern_client.outbox.databases import BlockingDatabase
from tern_client.outbox.listeners import Listeners
from tern_client.outbox.rows import Backlog, FailedRow
from tern_client.outbox.statements import OutboxStatements


class RowCalls(Listeners):
    """Calls about failed and waiting rows. The subclass sets *database* and *statements*."""

    __slots__ = ()

    database: BlockingDatabase
    statements: OutboxStatements

    def failed(self, limit: int = 100) -> list[FailedRow]:
        """Return the first *limit* rows that the server refused for good, with its reasons."""
        return self.database.run(lambda execute: operations.failed_rows(execute, self.statements, limit))

    def retry(self, ids: Sequence[str]) -> int:
        """Let failed rows wait again, in their old places before younger rows; return how many."""
        count = self.database.run(lambda execute: operations.retry(execute, self.statements, ids))
        self.notify()
        return count

    def discard(self, ids: Sequence[str]) -> int:
        """Delete failed rows, which are then never sent; return how many."""
        return self.database.run(lambda execute: operations.discard(execute, self.statements, ids))

    def backlog(self) -> Backlog:
        """Count what waits and what failed; for an alert when no relay runs."""
        return self.database.run(lambda execute: operations.backlog(execute, self.statements))
