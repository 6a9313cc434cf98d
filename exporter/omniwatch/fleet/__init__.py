"""What a device of a fleet tells its centre itself."""
