"""What may be kept of a range of messages: a closed range never changes, so whoever has read it need not read it again.

A range is closed when it was asked for by numbers, and all of it was answered: offsets of a queue name the same messages for ever. The tag
follows from the question alone, so one that comes back in If-None-Match is answered without asking the broker.
Reference: RFC 9110 8.8.3 and 13.1.2, RFC 8246 (immutable).
"""

from collections.abc import Iterable
from hashlib import blake2b

# Long enough for any job that reads a range twice; a topic that is made anew under its name is forgotten by caches within the hour.
CACHE_CONTROL = "private, max-age=3600, immutable"


def range_tag(topic_id: int, queue: str, asked: Iterable[object], kind: str) -> str:
    """The ETag of a closed range of the topic with that id; *asked* is everything that the answer depends on. Weak, since raw records
    say where they lie, and retention may move them."""
    digest = blake2b(repr((topic_id, queue, tuple(asked), kind)).encode(), digest_size=12)
    return f'W/"{digest.hexdigest()}"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Whether a client has what *tag* names."""
    return tag in {item.strip() for item in if_none_match.split(",")}
