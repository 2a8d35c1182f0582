"""The checker's decisions, without clock, network or chance.

Order and time of checks, meaning of answers, circuits of hosts.
"""
