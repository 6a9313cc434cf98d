"""Read and write the wire formats that several rooms meet: WAV, server-sent events. Standard library only."""
