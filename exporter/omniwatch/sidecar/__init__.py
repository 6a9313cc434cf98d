"""The sidecar's loop, its watch over the wall clock, and its checkpoint."""
