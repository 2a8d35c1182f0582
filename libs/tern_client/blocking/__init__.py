"""What clients can ask, for threads: each file is made from the one of its name in `asynchronous`, by `make blocking`."""
