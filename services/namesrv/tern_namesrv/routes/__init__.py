"""The name server's HTTP routes, one router for each kind of caller.

Brokers register; proxies and people look up; operators configure.
"""

from tern_namesrv.routes.brokers import broker_routes
from tern_namesrv.routes.lookups import lookup_routes
from tern_namesrv.routes.operators import operator_routes

__all__ = ["broker_routes", "lookup_routes", "operator_routes"]
