"""The commands of a desk, one file each; the group in `omniwatch.cli` finds them by their folder."""
