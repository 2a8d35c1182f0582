"""HTTP routes: the hot ones as raw ASGI handlers, the admin ones with FastAPI."""
