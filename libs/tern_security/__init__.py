"""Who a process of the mesh is, and how it shows that: certificates of the cluster's own authority, TLS contexts that reload them.

Used by `tern_remoting` (links), `tern_service` (HTTP), the services and the command line; knows `tern_wire` alone. Only `authority.py`
needs the package cryptography; everything that a service does at run time needs the standard library's ssl alone.
"""
