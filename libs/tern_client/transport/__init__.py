"""How the SDK asks: endpoints, credentials, retries, connections; for asyncio and for threads."""
