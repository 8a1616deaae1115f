"""The Anthropic Messages API over chats."""
