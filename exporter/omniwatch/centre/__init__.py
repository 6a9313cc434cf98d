"""What only a fleet's centre runs: the fleet file, service discovery, the state of all devices. `install` leaves it off a plain device."""
