"""The calls of clients, for threads. `make blocking` makes each file from the one of its name in
`asynchronous`.
"""
