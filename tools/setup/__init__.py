"""Set-up of a clone: `python3 -m tools.setup TARGET`, with any Python from 3.9 on and nothing but its standard library.

Every duty is one file; `steps.py` puts them in order. What is expensive and independent of the clone lives in a
cache folder (`FASTFRONT_CACHE`, default ~/.cache/fastfront) and is reused by other clones.
"""
