"""How a command fails: a title, a sentence that says what to do, and an exit code (1: it did not work, 2: it was asked wrongly)."""


class CommandFailed(Exception):
    """Ends the command. *lines* are shown below as they are: a log's end, for instance."""

    def __init__(self, title: str, detail: str, *, exit_code: int = 1, lines: list[str] | None = None) -> None:
        super().__init__(f"{title}: {detail}")
        self.title = title
        self.detail = detail
        self.exit_code = exit_code
        self.lines = lines or []


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """What ended the tasks of *group*: when one of them fails, the others are only cancelled."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
