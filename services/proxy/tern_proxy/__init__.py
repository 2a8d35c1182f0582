"""The proxy: TernMQ's HTTP API.

Stateless: receipt handles and offsets carry the state of later requests.
"""
