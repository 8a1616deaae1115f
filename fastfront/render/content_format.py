"""What a chat template expects as message content: one string, or a list of parts ("openai")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from jinja2 import nodes


def detect_content_format(ast: nodes.Template) -> Literal["string", "openai"]:
    """"openai" if the template loops over the content of a message it took from `messages`, else "string"."""
    for name in _loop_items(ast, _aliases(ast, "messages"), None):
        contents = {name}
        for _ in _loop_items(ast, contents, "content"):
            return "openai"
    return "string"


def _reads(node: nodes.Node, name: str, key: str | None) -> bool:
    """Whether the expression is the variable (or, with a key, that item of it), possibly filtered, tested or sliced."""
    if isinstance(node, (nodes.Filter, nodes.Test)):
        return node.node is not None and _reads(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _reads(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getitem):
        return _reads(node.node, name, None) and isinstance(node.arg, nodes.Const) and node.arg.value == key
    return isinstance(node, nodes.Getattr) and node.attr == key and _reads(node.node, name, None)


def _aliases(ast: nodes.Template, name: str) -> set[str]:
    """The variable and those assigned from it or from a part of it."""
    found, todo = {name}, [name]
    while todo:
        source = todo.pop()
        for assign in ast.find_all(nodes.Assign):
            target = assign.target
            if isinstance(target, nodes.Name) and target.name not in found and _reads(assign.node, source, None):
                found.add(target.name)
                todo.append(target.name)
    return found


def _loop_items(ast: nodes.Template, names: set[str], key: str | None) -> Iterator[str]:
    """Loop variables of the loops over one of the names, or over that item of it."""
    for loop in ast.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name) and any(_reads(loop.iter, name, key) for name in names):
            yield loop.target.name
