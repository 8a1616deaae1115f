"""Proving that a chat template prints the texts of messages and does nothing else with them.

Most templates look at the roles of messages and at little of their texts: whether one holds `</think>`, say. What is printed
around the texts is the same then for all chats of the same roles whose texts are none of those that it looks for.
"""

from __future__ import annotations

from jinja2 import nodes

from fastfront._speedups.plain_chat import Guards

_KEYS = ("role", "content")
_LOOP = frozenset({"first", "last", "index", "index0", "revindex", "revindex0", "length"})
_FILTERS = frozenset({"trim", "length", "count", "upper", "lower", "default", "d", "string", "tojson", "int"})
_FUNCTIONS = frozenset({"raise_exception", "namespace", "range", "dict"})
_NEVER = frozenset({"loop", "self", "caller", "varargs", "kwargs", "super", "strftime_now", "lipsum", "cycler", "joiner"})
_TRUE_OF_TEXT = frozenset({"string", "defined", "iterable", "sequence"})
_FALSE_OF_TEXT = frozenset({"none", "undefined", "mapping", "number", "integer", "boolean", "callable"})
_ATTRIBUTES_OF_DICT = frozenset(dir(dict))

# What an expression can be: what texts have no part in, the list of messages, a message, a message's text, a text that holds one.
_CLEAN, _CHAT, _MESSAGE, _TEXT, _AROUND = "clean", "chat", "message", "text", "around"
_PRINTED = frozenset({_CLEAN, _TEXT, _AROUND})


class _NotFixed(Exception):
    """What is printed may depend on the texts in another way."""


class _Proof:
    """Follows where the texts of messages can go. It is given up (`_NotFixed`) at whatever is not known to be harmless."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.starts: set[str] = set()
        self.ends: set[str] = set()
        self.stripped = False
        self.filled = False
        self._kinds: dict[str, str] = {"messages": _CHAT}

    def template(self, ast: nodes.Template) -> None:
        """Goes through it until nothing more is learned of the variables."""
        while True:
            before = dict(self._kinds)
            self._body(ast.body)
            if self._kinds == before:
                return

    # ---- statements ------------------------------------------------------------------------------------------------

    def _body(self, body: list[nodes.Node]) -> None:
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._require(self._kind(part) in _PRINTED)
                case nodes.TemplateData():
                    pass
                case nodes.If():
                    self._if(node)
                case nodes.For():
                    self._for(node)
                case nodes.Assign():
                    self._assign(node.target, self._kind(node.node))
                case nodes.ExprStmt():
                    self._kind(node.node)
                case _:
                    self._require(type(node).__name__ in ("Break", "Continue"))

    def _if(self, node: nodes.If) -> None:
        """Branches that no text can lead to are left out."""
        for test, body in [(node.test, node.body), *((branch.test, branch.body) for branch in node.elif_)]:
            known = self._truth(test)
            if known is not False:
                self._body(body)
            if known is True:
                return
        self._body(node.else_)

    def _for(self, node: nodes.For) -> None:
        self._require(not node.recursive)
        kind = self._kind(node.iter)
        self._require(kind in (_CLEAN, _CHAT))
        self._assign(node.target, _MESSAGE if kind == _CHAT else _CLEAN)
        if node.test is not None:
            self._truth(node.test)
        self._body(node.body)
        self._body(node.else_)

    def _assign(self, target: nodes.Node, kind: str) -> None:
        if isinstance(target, nodes.Name):
            self._require(target.name not in ("messages", "loop") and self._kinds.setdefault(target.name, kind) == kind)
        else:
            self._require(kind == _CLEAN and isinstance(target, (nodes.NSRef, nodes.Tuple)))
            if isinstance(target, nodes.Tuple):
                for item in target.items:
                    self._assign(item, _CLEAN)

    # ---- expressions -----------------------------------------------------------------------------------------------

    @staticmethod
    def _require(known: bool) -> None:
        if not known:
            raise _NotFixed

    def _clean(self, *parts: nodes.Node | None) -> str:
        for part in parts:
            self._require(part is None or self._kind(part) == _CLEAN)
        return _CLEAN

    def _truth(self, node: nodes.Node) -> bool | None:
        """What a condition is for all texts that pass; None if that depends on something else than texts."""
        match node:
            case nodes.Not():
                known = self._truth(node.node)
                return None if known is None else not known
            case nodes.And() | nodes.Or():
                ends = isinstance(node, nodes.Or)  # the side that decides alone
                left = self._truth(node.left)
                if left is ends:
                    return ends
                right = self._truth(node.right)
                return ends if right is ends else left if left == right else None
            case nodes.Const():
                return bool(node.value)
            case nodes.Test() if node.name in _TRUE_OF_TEXT | _FALSE_OF_TEXT and self._kind(node.node) in (_TEXT, _AROUND):
                return node.name in _TRUE_OF_TEXT
            case nodes.Compare() if len(node.ops) == 1 and node.ops[0].op in ("in", "notin"):
                return self._membership(node.expr, node.ops[0].expr, node.ops[0].op == "in")
            case nodes.Call() if (guard := self._guard(node)) is not None:
                found, text = guard
                self._require(text != "")
                found.add(text)
                return False
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)) and self._kind(node) == _TEXT:
            self.filled = True
            return True
        self._clean(node)
        return None

    def _membership(self, item: nodes.Expr, holder: nodes.Expr, positive: bool) -> bool | None:
        kind = self._kind(holder)
        if kind in (_TEXT, _MESSAGE):
            self._require(isinstance(item, nodes.Const) and isinstance(item.value, str) and item.value != "")
            assert isinstance(item, nodes.Const)
            if kind == _MESSAGE:
                return (item.value in _KEYS) is positive
            self.inside.add(item.value)
            return not positive
        self._require(kind == _CLEAN)
        self._clean(item)
        return None

    def _guard(self, node: nodes.Call) -> tuple[set[str], str] | None:
        """`text.startswith("...")` or `text.endswith("...")`: what texts must not have, and where."""
        call = self._method(node)
        if call is None or call[0] not in ("startswith", "endswith") or len(call[1]) != 1:
            return None
        return (self.starts if call[0] == "startswith" else self.ends), call[1][0]

    def _method(self, node: nodes.Call) -> tuple[str, list[str]] | None:
        """A method of a message's text that is called with nothing but texts of the template: its name, and these."""
        target = node.node
        if not isinstance(target, nodes.Getattr) or self._kind(target.node) != _TEXT:
            return None
        values = [arg.value for arg in node.args if isinstance(arg, nodes.Const)]
        self._require(len(values) == len(node.args) and not (node.kwargs or node.dyn_args or node.dyn_kwargs))
        self._require(all(isinstance(value, str) for value in values))
        return target.attr, values

    def _strips(self, name: str, given: list[str]) -> None:
        """Taking away what texts that pass do not begin or end with leaves them alone."""
        self._require(name in ("strip", "lstrip", "rstrip", "trim") and len(given) <= 1)
        if not given:
            self.stripped = True
            return
        if name != "rstrip":
            self.starts.update(given[0])
        if name != "lstrip":
            self.ends.update(given[0])

    def _kind(self, node: nodes.Node) -> str:
        match node:
            case nodes.Const() | nodes.TemplateData():
                return _CLEAN
            case nodes.Name():
                self._require(node.name not in _NEVER)
                return self._kinds.get(node.name, _CLEAN)
            case nodes.Getattr() if isinstance(node.node, nodes.Name) and node.node.name == "loop":
                self._require(node.attr in _LOOP)
                return _CLEAN
            case nodes.Getattr():
                return self._item(self._kind(node.node), node.attr)
            case nodes.Getitem():
                return self._subscript(node)
            case nodes.Add() | nodes.Concat():
                parts = node.nodes if isinstance(node, nodes.Concat) else [node.left, node.right]
                kinds = {self._kind(part) for part in parts}
                self._require(kinds <= _PRINTED)
                return _CLEAN if kinds == {_CLEAN} else _AROUND
            case nodes.CondExpr():
                return self._choice(node)
            case nodes.Filter():
                return self._filter(node)
            case nodes.Call():
                return self._call(node)
            case nodes.Test() | nodes.Compare() | nodes.Not() | nodes.And() | nodes.Or():
                return self._condition(node)
            case nodes.Sub() | nodes.Mul() | nodes.Div() | nodes.FloorDiv() | nodes.Mod() | nodes.Pow():
                return self._clean(node.left, node.right)
            case nodes.Neg() | nodes.Pos():
                return self._clean(node.node)
            case nodes.List() | nodes.Tuple():
                return self._clean(*node.items)
        raise _NotFixed

    def _condition(self, node: nodes.Node) -> str:
        """A condition's own kind; one that looks at texts is decided before (`_truth`)."""
        match node:
            case nodes.Test():
                if self._kind(node.node) != _CLEAN:
                    self._require(node.name in _TRUE_OF_TEXT | _FALSE_OF_TEXT and self._kind(node.node) != _MESSAGE)
                return self._clean(*node.args)
            case nodes.Compare() if len(node.ops) == 1 and node.ops[0].op in ("in", "notin"):
                self._membership(node.expr, node.ops[0].expr, True)
                return _CLEAN
            case nodes.Compare():
                return self._clean(node.expr, *(operand.expr for operand in node.ops))
        self._truth(node)
        return _CLEAN

    def _item(self, kind: str, name: str) -> str:
        self._require(kind in (_CLEAN, _MESSAGE) and not name.startswith("_"))
        if kind == _CLEAN:
            return _CLEAN
        self._require(name not in _ATTRIBUTES_OF_DICT)
        return _TEXT if name == "content" else _CLEAN

    def _subscript(self, node: nodes.Getitem) -> str:
        kind = self._kind(node.node)
        if isinstance(node.arg, nodes.Slice):
            self._require(kind in (_CLEAN, _CHAT))
            self._clean(node.arg.start, node.arg.stop, node.arg.step)
            return kind
        if kind == _CHAT:
            self._clean(node.arg)
            self._require(not isinstance(node.arg, nodes.Const) or isinstance(node.arg.value, int))
            return _MESSAGE
        if kind == _CLEAN:
            return self._clean(node.arg)
        self._require(isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str))
        assert isinstance(node.arg, nodes.Const)
        return self._item(kind, node.arg.value)

    def _choice(self, node: nodes.CondExpr) -> str:
        known = self._truth(node.test)
        chosen = [*([node.expr1] if known is not False else []), *([node.expr2] if known is not True and node.expr2 else [])]
        kinds = {self._kind(part) for part in chosen}
        self._require(kinds <= _PRINTED)
        return kinds.pop() if len(kinds) == 1 else _AROUND

    def _filter(self, node: nodes.Filter) -> str:
        self._require(node.node is not None and node.name in _FILTERS and not (node.dyn_args or node.dyn_kwargs))
        assert node.node is not None
        kind = self._kind(node.node)
        self._clean(*node.args, *(pair.value for pair in node.kwargs))
        if kind == _TEXT:
            self._require(not node.args and not node.kwargs)
            if node.name == "trim":
                self._strips("trim", [])
            else:
                self._require(node.name == "string")
            return _TEXT
        self._require(kind == _CLEAN or (kind == _CHAT and node.name in ("length", "count")))
        return _CLEAN

    def _call(self, node: nodes.Call) -> str:
        if isinstance(node.node, nodes.Name):
            self._require(node.node.name in _FUNCTIONS and node.node.name not in self._kinds)
            self._require(not (node.dyn_args or node.dyn_kwargs))
            return self._clean(*node.args, *(pair.value for pair in node.kwargs))
        called = self._method(node)
        if called is not None:
            self._strips(*called)
            return _TEXT
        target = node.node
        self._require(isinstance(target, nodes.Getattr) and not target.attr.startswith("_"))
        assert isinstance(target, nodes.Getattr)
        self._require(not (node.dyn_args or node.dyn_kwargs))
        return self._clean(target.node, *node.args, *(pair.value for pair in node.kwargs))


def guards_of(ast: nodes.Template) -> Guards | None:
    """What texts of a chat must not be for what is printed around them to depend on nothing but roles; None: it may anyway.

    `ast` is a template in which a message's content is one text.
    """
    proof = _Proof()
    try:
        proof.template(ast)
    except _NotFixed:
        return None
    inside, starts, ends = (tuple(sorted(found)) for found in (proof.inside, proof.starts, proof.ends))
    return Guards(inside, starts, ends, proof.stripped, proof.filled)
