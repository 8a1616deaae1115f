"""What a constraint on the output must look like, checked without an engine: regexes, JSON schemas, grammars, tags.

Every check raises `BadConstraint` with the reason, in time linear in the input and without recursing over it. They are
coarser than the compilers of engines: what passes here can still be refused there.
"""
