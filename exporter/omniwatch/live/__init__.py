"""What the live page and `watch` show: both curves of the last quarter of an hour, the state in words, a feed of what is new."""
