"""From logits to tokens, batched."""
