"""A mobile network in user space: a relay between client and server that delays, loses, cuts and comes back, by a seed."""
