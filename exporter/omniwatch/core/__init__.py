"""The stream table: what the events of all streams add up to. Pure: time comes only from events and arguments."""
