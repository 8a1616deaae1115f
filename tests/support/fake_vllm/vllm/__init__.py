"""Stands for vLLM where that is not installed."""
