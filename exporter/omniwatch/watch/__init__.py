"""The live page in a terminal: what the feed says, curves in braille."""
