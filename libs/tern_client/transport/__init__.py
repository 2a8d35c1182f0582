"""Requests to proxies: endpoints, credentials, retries and connections, for asyncio and for
threads.
"""
