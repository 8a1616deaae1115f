"""Which request computes which tokens in the next step. No torch, no socket, no clock."""
