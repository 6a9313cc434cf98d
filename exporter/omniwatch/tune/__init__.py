"""CPU limits of the model server: what they do to its frames, and what to set instead."""
