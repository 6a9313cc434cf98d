"""The bridge from Alertmanager's webhook to the robots of chat groups: DingTalk, Feishu, WeCom."""
