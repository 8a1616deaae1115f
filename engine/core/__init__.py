"""The engine core process: input thread, busy loop, output thread."""
