"""Kernels for CPUs in C: products with packed weights, attention over a paged cache, whole decoder layers.

Set-up compiles them; without them the engine runs on torch's own operations.
"""
