"""Draw dashboards as pictures: ask Prometheus what Grafana would ask, and use the same grid."""
