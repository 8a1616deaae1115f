"""Command line: argument parsing and model resolution; no serving logic."""
