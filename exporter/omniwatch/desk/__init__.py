"""What runs at a desk and never on a device: planning, drawing, measuring, simulating. `install` leaves it out."""
