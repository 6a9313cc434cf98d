"""From the stream table, at the moment of a scrape, to metric families."""
