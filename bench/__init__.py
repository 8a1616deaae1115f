"""Instruments and records: how much CPU time, latency and memory frontends need, side by side."""
