"""`ternmq store`: looking into the files of a store, with nothing running."""

from tern_cli.store.commands import store_app

__all__ = ["store_app"]
