"""`ternmq store`: inspection of a store's files while nothing runs."""

from tern_cli.store.commands import store_app

__all__ = ["store_app"]
