"""What a caller may do, decided purely: rights, requirements of routes, quotas, namespaces."""
