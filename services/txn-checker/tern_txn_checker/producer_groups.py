"""The callback settings of the producer groups of one broker group: URL, secret, timeout.

Settings are fetched at a check and kept for a few seconds. Owner of the cache: this object. Law: a
change takes effect at most KEPT_MS later.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tern_routing import GroupLink
from tern_txn_checker.core.answers import FORBIDDEN, NO_SECRET, NO_URL
from tern_wire.checks.urls import CheckHosts, CheckUrl
from tern_wire.errors import CheckUrlForbidden, LinkBodyMalformed, ProducerGroupNotFound, TernError
from tern_wire.limits import PRODUCER_GROUPS_MAX
from tern_wire.link.producer_groups import DescribeProducerGroups
from tern_wire.settings.producer_settings import ProducerSettings, read_producer_settings

# A check is repeated after 30 s; one small request every 5 s for each producer group in use costs
# little.
KEPT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """The callback settings of one producer group.

    *url* None: no call is made, for the reason *why_not* (an answer's text).
    """

    settings: ProducerSettings
    url: CheckUrl | None
    why_not: str = ""


class ProducerGroups:
    """The cache of one broker group's settings. *hosts*: allowed URLs.

    *mono_ms*: a monotonic clock.
    """

    def __init__(self, link: GroupLink, hosts: CheckHosts, mono_ms: Callable[[], int]) -> None:
        self._link, self._hosts, self._mono_ms = link, hosts, mono_ms
        self._kept: dict[str, tuple[Approach, int]] = {}

    async def approach(self, name: str) -> Approach:
        """Return the current settings of *name*.

        Raises the errors of the broker group, such as ProducerGroupNotFound.
        """
        found = self._kept.get(name)
        if found is not None and self._mono_ms() < found[1]:
            return found[0]
        asked = DescribeProducerGroups(producer_group=name, after="", limit=1)
        told, _ = await self._link.ask(asked, is_repeatable=True)
        if not told.groups:
            raise ProducerGroupNotFound(producer_group=name)
        try:
            approach = self._approach(read_producer_settings(msgspec.structs.asdict(told.groups[0])))
        except TernError as error:
            raise LinkBodyMalformed(reason=error.detail) from error
        if len(self._kept) >= PRODUCER_GROUPS_MAX:
            self._kept.clear()
        self._kept[name] = (approach, self._mono_ms() + KEPT_MS)
        return approach

    def _approach(self, settings: ProducerSettings) -> Approach:
        if not settings.check_url:
            return Approach(settings=settings, url=None, why_not=NO_URL)
        if not settings.check_secret:
            return Approach(settings=settings, url=None, why_not=NO_SECRET)
        try:
            return Approach(settings=settings, url=self._hosts.require_allowed(settings.check_url))
        except CheckUrlForbidden:
            return Approach(settings=settings, url=None, why_not=FORBIDDEN)
