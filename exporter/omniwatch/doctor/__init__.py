"""Gather a device's evidence in one archive without secrets, with a summary of what is wrong."""
