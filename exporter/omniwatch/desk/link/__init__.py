"""Simulate a mobile network in user space: a relay that delays, loses and cuts, reproducible by a seed."""
