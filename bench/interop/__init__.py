"""Every frontend in front of every engine: does it serve?"""
