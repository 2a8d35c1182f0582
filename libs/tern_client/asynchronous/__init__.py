"""The calls of clients, written for asyncio. `make blocking` makes the folder `blocking` from this
one.
"""
