"""The commands of a fleet's centre, one file each; `omniwatch fleet` finds them by their folder."""
