"""LoRA adapters: reading them, and what they add to a model's linear layers."""
