"""HTTP/1.1 as a client, for the SDK and the services: connections, pools, and http.client for
threads.

`exchange` and `blocking` need the standard library only; `connection` and `pool` need httptools
(llhttp).
"""
