"""Whatever a client sends as a constraint, the checks pass it or refuse it; they never fail otherwise."""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastfront._speedups.msgpack import packb, unpackb
from fastfront.config import StructuredOptions
from fastfront.errors import ApiError
from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf, choice_grammar, lark_as_ebnf
from fastfront.openai.constraints.regex import check_regex
from fastfront.openai.structured import KINDS, structured_map

USUAL = StructuredOptions()
KEYWORDS = [
    "type", "properties", "items", "anyOf", "enum", "required", "minLength", "maxLength", "minimum", "maximum", "pattern", "$ref",
    "$defs", "not", "prefixItems", "format", "multipleOf", "additionalProperties", "patternProperties", "a",
]  # fmt: skip
VALUES = ["string", "object", "array", "#", "#/$defs/a", "(", "a+", "uri"]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(VALUES) | st.text(max_size=4)
schemas = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=25,
)
regexes = st.text(st.sampled_from("ab01()[]{}|*+?\\^$-,.:=!<>Pdwbxu/ é\n"), max_size=20)
grammars = st.text(st.sampled_from('ab":=|()[]*+?{}1,#/%.~\n \\i\''), max_size=40)


@settings(max_examples=500, deadline=None)
@given(regexes)
@example("(?<a>b)")
def test_regexes_that_pass_are_regexes(pattern: str) -> None:
    """Python's compiler takes them too, apart from what only others have."""
    try:
        check_regex(pattern)
    except BadConstraint:
        return
    python = re.sub(r"\\[uxpP]\{[^}]+\}", "x", pattern).replace("(?<", "(?P<")
    reason = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(python)
        except re.error as error:
            reason = str(error)
    # Names used twice and flags in the middle are the same to a grammar.
    assert not reason or any(words in reason for words in ("group name", "redefinition", "flags", "multiple repeat"))


@settings(max_examples=300, deadline=None)
@given(grammars)
def test_grammars_pass_or_are_refused(grammar: str) -> None:
    with suppress(BadConstraint):
        check_ebnf(grammar)
    with suppress(BadConstraint):
        converted = lark_as_ebnf(grammar)
        if converted is not None:
            check_ebnf(converted)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_choices_are_grammars_whatever_they_are(choices: list[str]) -> None:
    check_ebnf(choice_grammar(choices))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(KINDS), schemas | regexes)
def test_every_constraint_is_refused_or_can_be_sent(kind: str, value: Any) -> None:
    """Types are right by then: the body's shape has been checked."""
    shape = {"json": (dict, str), "choice": list, "json_object": bool}.get(kind, str)
    if not isinstance(value, shape) or (kind == "choice" and not all(isinstance(item, str) for item in value)):
        return
    try:
        found = structured_map({kind: value}, USUAL)
    except ApiError as error:
        status = error.status
    else:
        assert unpackb(packb(found)) == found
        return
    assert status == 400
