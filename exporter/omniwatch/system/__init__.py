"""What the operating system offers: files replaced whole, sysfs, D-Bus, sd_notify, child processes, the log."""
