"""Broker groups from outside, for proxies and checkers: routes from the name servers, a link to each node, who leads, and requests that
follow the leader."""

from tern_routing.group_link import Dial, Dialled, GivenUp, GroupLink, OnDown, OnNotice, OnUp
from tern_routing.leadership import LeaderBelief

__all__ = ["Dial", "Dialled", "GivenUp", "GroupLink", "LeaderBelief", "OnDown", "OnNotice", "OnUp"]
