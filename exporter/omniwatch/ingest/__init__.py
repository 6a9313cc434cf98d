"""Turn a source's lines into events, each counted once."""
