"""List the devices of a fleet, find their metrics, and show their state as the centre knows it."""
