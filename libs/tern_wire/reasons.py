"""Error reasons in the words of the operating system or a library, without error numbers, for use
inside a sentence. Pure.
"""

import re

_NUMBER = re.compile(r"\[Errno [\w-]+\] ?| ?\(_ssl\.c:\d+\)")


def reason_of(error: BaseException) -> str:
    """Return the text of *error* without `[Errno 2]` and without the file name; the type's name
    when there is no text.
    """
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _NUMBER.sub("", said).strip() or type(error).__name__
