"""From a source's lines to events, each counted once."""
