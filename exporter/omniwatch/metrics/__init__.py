"""Turn the stream table at the moment of a scrape into metric families."""
