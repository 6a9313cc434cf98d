"""Use the operating system: atomic file writes, sysfs, D-Bus, sd_notify, child processes, the log."""
