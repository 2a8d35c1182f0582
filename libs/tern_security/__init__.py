"""Identities of the mesh's processes: certificates of the cluster's own authority, TLS contexts.

The contexts reload changed certificates. Used by `tern_remoting` (links), `tern_service` (HTTP),
the services and the command line; imports `tern_wire` alone. Only `authority.py` needs the package
cryptography; at run time a service needs the standard library's ssl alone.
"""
