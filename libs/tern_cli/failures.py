"""Failure of a command: a title, a sentence with the remedy, and an exit code.

Exit code 1: the command failed. Exit code 2: wrong usage.
"""


class CommandFailed(Exception):
    """Failure that ends the command.
    *lines*, such as the end of a log, are shown below it unchanged.
    """

    def __init__(self, title: str, detail: str, *, exit_code: int = 1, lines: list[str] | None = None) -> None:
        super().__init__(f"{title}: {detail}")
        self.title = title
        self.detail = detail
        self.exit_code = exit_code
        self.lines = lines or []


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first failure in *group*: it ended the tasks, the others were cancelled."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
