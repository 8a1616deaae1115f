"""Accounting of the paged KV cache: which block belongs to whom. Numbers only, the tensors are the worker's."""
