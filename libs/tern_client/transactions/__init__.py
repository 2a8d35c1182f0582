"""Transactions in the SDK: producers, the course of a transaction, checks, and callbacks that
answer them.
"""
