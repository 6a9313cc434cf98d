"""Evidence from a device in one bundle, without secrets: what was gathered, what could not be, what is wrong at a glance."""
