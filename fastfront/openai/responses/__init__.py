"""The OpenAI Responses API over chats, without stored responses."""
