"""The worker: a device, the model on it, its share of the KV cache."""
