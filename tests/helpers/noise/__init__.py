"""How often the rules call somebody: days of turns through the sidecar's own code, and every rule of the bundle asked of them."""
