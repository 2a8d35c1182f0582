"""`ternmq worker`: the import of a program's Worker, and the processes that run it."""
