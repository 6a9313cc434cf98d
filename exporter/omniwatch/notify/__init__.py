"""The bridge from Alertmanager's webhook to the robots of chat groups. `install` brings it where the settings name a robot."""
