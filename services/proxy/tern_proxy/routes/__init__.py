"""HTTP routes: hot ones as raw ASGI handlers, admin ones with FastAPI."""
