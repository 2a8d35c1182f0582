"""Who asks, and what they may: credentials, rights, namespaces, and the principals that this proxy knows."""
