"""Grammars: EBNF as xgrammar and llama.cpp (GBNF) write it, and Lark. Read only as far as their rules and brackets."""

from __future__ import annotations

import re
from typing import NamedTuple

from fastfront.openai.constraints.errors import BadConstraint

_EBNF = re.compile(
    r"(?P<blank>\s+|\#[^\n]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<cls>\[(?:[^\]\\\n]|\\.)*\])"
    r"|(?P<define>::=)"
    r"|(?P<macro>[A-Z]\w*\()"
    r"|(?P<name>[A-Za-z_][\w.-]*)"
    r"|(?P<repeat>[*+?]|\{\s*(?:\d+\s*)?(?:,\s*(?:\d+\s*)?)?\})"
    r"|(?P<open>\()|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<other>\d+|[=,;!&.-])"
)
_LARK = re.compile(
    r"(?P<blank>[^\S\n]+|//[^\n]*|\#[^\n]*)"
    r"|(?P<line>\n)"
    r'|(?P<string>(?:"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')i?)'
    r"|(?P<regex>/(?:[^/\\\n]|\\.)+/[imslux]*)"
    r"|(?P<rule>[?!]?[A-Za-z_]\w*(?:\.-?\d+)?(?:\[[^][\n]*\])?[^\S\n]*:(?!:))"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<range>\.\.)|(?P<alias>->[^\S\n]*\w+)"
    r"|(?P<repeat>[*+?])"
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<bar>\|)"
    r"|(?P<other>%\w+|[~,{}<>=.:@-]|\d+)"
)
_COMMENT = re.compile(r"(#|//).*$", re.MULTILINE)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def is_lark(grammar: str) -> bool:
    """Whether a grammar is Lark: it has no `::=` outside comments."""
    return "::=" not in _COMMENT.sub("", grammar)


def check_ebnf(grammar: str) -> None:
    """Raises BadConstraint unless the grammar consists of rules, one of them `root`, whose names are all defined."""
    tokens = _tokens(grammar, _EBNF)
    starts = [k for k in range(len(tokens) - 1) if tokens[k].kind == "name" and tokens[k + 1].kind == "define"]
    if not starts or starts[0] != 0:
        raise BadConstraint(_at("a rule (name ::= ...) was expected", tokens[0] if tokens else None))
    defined = {tokens[k].text for k in starts}
    if "root" not in defined:
        raise BadConstraint("there is no rule named root")
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        body = tokens[start + 2 : end]
        if not body:
            raise BadConstraint(_at(f"rule {tokens[start].text} is empty", tokens[start]))
        _check_body(body, defined)


def lark_as_ebnf(grammar: str) -> str | None:
    """A Lark grammar's rules as EBNF; None if it has what EBNF has not (regexes, ranges, imports, ...).

    Raises BadConstraint for what is no Lark grammar.
    """
    tokens = _tokens(grammar, _LARK)
    rules: dict[str, list[Token]] = {}
    body: list[Token] | None = None
    simple = True
    for token in tokens:
        if token.kind == "rule":
            name = re.split(r"[.\[:\s]", token.text.lstrip("?!"), maxsplit=1)[0]
            body = rules.setdefault(name, [])
            simple = simple and "[" not in token.text
        elif token.kind == "other" and token.text.startswith("%"):
            body, simple = [], False        # the rest of a directive is not looked at
        elif token.kind != "line":
            if body is None or token.text == "=":
                raise BadConstraint(_at("a rule (name: ...) was expected", token))
            body.append(token)
    if not rules:
        raise BadConstraint("there is no rule (name: ...)")
    for name, found in rules.items():
        if not found:
            raise BadConstraint(f"rule {name} is empty")
        _check_body(found, rules.keys() if simple else None)
    if not simple or any(_is_beyond_ebnf(token) for found in rules.values() for token in found):
        return None
    first = "start" if "start" in rules else next(iter(rules))
    lines = [] if "root" in rules else [f"root ::= {first}"]
    return "\n".join([*lines, *(f"{name} ::= {_ebnf_body(found)}" for name, found in rules.items())])


def choice_grammar(choices: list[str]) -> str:
    """The EBNF of one out of several texts."""
    return "root ::= " + " | ".join(f'"{_escaped(choice)}"' for choice in choices)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _tokens(grammar: str, rules: re.Pattern[str]) -> list[Token]:
    found, at, line = [], 0, 1
    while at < len(grammar):
        match = rules.match(grammar, at)
        if match is None:
            raise BadConstraint(f"unexpected {grammar[at : at + 20]!r} at line {line}")
        kind = match.lastgroup or ""
        if kind != "blank":
            found.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return found


def _check_body(body: list[Token], defined: object) -> None:
    """`defined` is a container of names, or None when names may come from elsewhere."""
    depth, before = 0, "bar"
    known = None if any(token.kind == "macro" for token in body) else defined
    if len(body) > 1 and body[1].text == "=":
        raise BadConstraint(_at("nothing before what shall follow, '(='", body[1]))
    for token in body:
        if token.kind in ("open", "macro"):
            depth += 1
        elif token.kind == "close":
            depth -= 1
            if depth < 0:
                raise BadConstraint(_at("unbalanced bracket", token))
        elif token.kind == "repeat" and before in ("bar", "open"):
            raise BadConstraint(_at(f"nothing to repeat before {token.text!r}", token))
        elif token.kind == "name" and known is not None and token.text not in known:  # type: ignore[operator]
            raise BadConstraint(_at(f"rule {token.text[:100]} is not defined", token))
        before = token.kind
    if depth:
        raise BadConstraint(_at("a bracket is not closed", body[0]))


def _ebnf_body(body: list[Token]) -> str:
    return " ".join(_ebnf_item(token) for token in body if token.kind != "alias")


def _ebnf_item(token: Token) -> str:
    if token.kind == "string" and token.text[0] == "'":
        return '"' + token.text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    if token.kind in ("open", "close"):
        return "(" if token.kind == "open" else ")?" if token.text == "]" else ")"
    return token.text


def _is_beyond_ebnf(token: Token) -> bool:
    return token.kind in ("regex", "range", "other") or (token.kind == "string" and token.text[-1] == "i")


def _at(what: str, token: Token | None) -> str:
    return f"{what} at line {token.line}" if token is not None else what
