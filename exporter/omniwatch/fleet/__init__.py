"""Many devices: which there are, where their metrics are, how they do by the centre's account."""
