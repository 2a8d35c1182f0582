"""The mesh of `ternmq up`: its plan, its files, its processes and their supervision."""
