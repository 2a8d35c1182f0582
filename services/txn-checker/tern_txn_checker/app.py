"""The checker's application: health, readiness, metrics and status.

It does without FastAPI; DESIGN.md has the memory that this saves.
"""

from prometheus_client import CollectorRegistry

from tern_service import PlainApp, health_routes, metrics_routes
from tern_service.process_security import UNPROTECTED, ProcessSecurity
from tern_txn_checker.checker import Checker
from tern_txn_checker.routes import checker_routes


def build_app(checker: Checker, security: ProcessSecurity = UNPROTECTED) -> PlainApp:
    """The ASGI application of *checker*, which starts and stops with its lifespan."""
    registry = CollectorRegistry()
    registry.register(checker.counters)
    security.register(registry)
    routes = {
        **health_routes(ready=checker.readiness, info=security.info(service="txn-checker", checker=checker.name)),
        **metrics_routes(registry, service="txn_checker"),
        **checker_routes(checker),
    }
    return PlainApp(routes, start=checker.start, stop=checker.stop)
