"""Why something failed, in the words of the operating system or a library, without its numbers: for the middle of a sentence. Pure."""

import re

_NUMBER = re.compile(r"\[Errno [\w-]+\] ?| ?\(_ssl\.c:\d+\)")


def reason_of(error: BaseException) -> str:
    """What *error* says, without `[Errno 2]`, and without the file's name, which the sentence has; its type when it says nothing."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _NUMBER.sub("", said).strip() or type(error).__name__
