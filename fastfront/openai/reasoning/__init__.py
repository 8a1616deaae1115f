"""Reasoning: where what a model thinks ends and what it answers begins."""
