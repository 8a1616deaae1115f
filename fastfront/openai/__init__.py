"""OpenAI request layer: from body bytes to a `PreparedCall`, and the small JSON endpoints."""
