"""Delivery, decided purely: leases, settles, order of message groups, offsets, seeks."""
