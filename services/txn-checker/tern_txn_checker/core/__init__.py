"""The checker's decisions, without clock, network or chance: what is asked when, what an answer means, when a host is left alone."""
