"""The command of the bridge; `omniwatch` finds it by its folder."""
