"""Measure what CPU limits do to the model server's frames, and find limits that do not hurt."""
