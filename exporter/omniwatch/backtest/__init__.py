"""A recorded incident put into a real Prometheus at event time: what each alert rule would have done, and when."""
