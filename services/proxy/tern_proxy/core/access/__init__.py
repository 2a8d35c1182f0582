"""Pure decisions about a caller's rights: grants, requirements of routes, quotas, namespaces."""
