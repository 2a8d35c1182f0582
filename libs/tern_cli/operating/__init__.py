"""Commands for operators: name servers, broker groups, their Raft groups, and the files of a secure
cluster.
"""
