"""The broker's HTTP routes: health, metrics, status, and copies for nodes that are rebuilt. They
carry no messages; proxies use the link.
"""

from tern_broker.routes.rebuild import RebuildRoutes
from tern_broker.routes.status import AskChoose, AskPassOver, AskTransfer, status_routes

__all__ = ["AskChoose", "AskPassOver", "AskTransfer", "RebuildRoutes", "status_routes"]
