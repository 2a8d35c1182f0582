"""Pure decisions of the proxy: parsing of requests, records and rows, result and message documents.

No clock, no loop.
"""
