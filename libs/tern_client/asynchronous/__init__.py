"""What clients can ask, written for asyncio. The folder `blocking` beside this one is made from it: change this one and say `make blocking`."""
