"""Caching of ranges of messages: a closed range never changes, so a client need not read it again.

A range is closed when it was requested by numbers and answered completely, because offsets of a
queue name the same messages for ever. The tag depends on the request alone, so a tag that returns
in If-None-Match is answered without a request to the broker. Reference: RFC 9110 8.8.3 and 13.1.2,
RFC 8246 (immutable).
"""

from collections.abc import Iterable
from hashlib import blake2b

# Long enough for a job that reads a range twice; after the recreation of a topic, caches forget the
# old one within the hour.
CACHE_CONTROL = "private, max-age=3600, immutable"


def range_tag(topic_id: int, queue: str, asked: Iterable[object], kind: str) -> str:
    """Return the ETag of a closed range of the topic with *topic_id*.

    *asked* is everything on which the answer depends. The tag is weak, since raw records contain
    their positions, and retention may move them.
    """
    digest = blake2b(repr((topic_id, queue, tuple(asked), kind)).encode(), digest_size=12)
    return f'W/"{digest.hexdigest()}"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Return whether a client has the content of *tag*."""
    return tag in {item.strip() for item in if_none_match.split(",")}
