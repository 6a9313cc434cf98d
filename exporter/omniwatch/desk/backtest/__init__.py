"""Run a recorded incident through a real Prometheus in event time: which alert rules would have fired, and when."""
