"""Dashboards as pictures: the queries Grafana would ask, asked of Prometheus, laid out on the same grid."""
