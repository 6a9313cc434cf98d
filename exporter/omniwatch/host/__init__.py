"""What the machine says of itself and of the model server; each reader is one file."""
