"""Render, check and install: turns alerts/, dashboards/, runbooks/ and deploy/ into files for a site."""
