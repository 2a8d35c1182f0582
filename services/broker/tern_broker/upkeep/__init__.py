"""Work without a request: saves, trims, scrubs, timers, burials of dead letters, shares of room."""
