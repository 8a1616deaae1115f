"""Values: JSON and Python that come in pieces, and texts typed by a schema."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfront.openai.tools.arguments import TypedArguments
from fastfront.openai.tools.coerce import coerced, corrected, types_of
from fastfront.openai.tools.json_text import JsonRewriter
from fastfront.openai.tools.json_value import CallObject, JsonValue
from fastfront.openai.tools.python_value import PythonValue
from tests.unit.tools.formats import SIZES, cut_up, values

MEMBERS = st.dictionaries(st.text("ab\"\\é", max_size=3), values(False), max_size=4)


@given(value=MEMBERS, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]), sizes=SIZES)
def test_json_is_rewritten_as_python_writes_it(value: Any, is_ascii: bool, indent: int | None, sizes: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    rewriter = JsonRewriter()
    assert "".join(map(rewriter.feed, cut_up(text, sizes))) + rewriter.finish() == json.dumps(value, ensure_ascii=False)


REWRITTEN = [
    ('{"a":1.50,"b":1E2}', '{"a": 1.5, "b": 100.0}'),
    (r'"\u00e9\/\ud83d\ude00\n"', '"é/😀\\n"'),
    (r'["\ud83dx", "\q"]', r'["\ud83dx", "\q"]'),
    ("[true,null , -0]", "[true, null, 0]"),
    ("12", "12"),
]


@pytest.mark.parametrize(("text", "expected"), REWRITTEN)
def test_rewritten_texts(text: str, expected: str) -> None:
    for pieces in (list(text), [text]):
        rewriter = JsonRewriter()
        assert "".join(map(rewriter.feed, pieces)) + rewriter.finish() == expected


@given(value=values(False), rest=st.sampled_from([", 1", "}", "]", " x"]), sizes=SIZES)
def test_the_end_of_a_value(value: Any, rest: str, sizes: list[int]) -> None:
    text = json.dumps(value)
    scanner, taken = JsonValue(), 0
    for piece in cut_up(text + rest, sizes):
        at = scanner.feed(piece, 0)
        taken += at
        if scanner.done:
            break
    assert scanner.done
    assert taken == len(text)


OBJECTS = [
    ('{"name": "f", "arguments": {"a": 1}, "arguments": {"b": 1}}', "f", '{"a": 1}'),
    ('{"name": "f", "arguments": {"a": 1}}', "f", '{"a": 1}'),
    ('{"arguments": {"a": "}"}, "name": "f"}', "f", '{"a": "}"}'),
    ('{"id": 7, "name": "f\\u0041", "arguments": "{}" , "x": [{}]}', "fA", '"{}"'),
    ('{"name": "f"}', "f", ""),
    ('{ "name":"f","arguments":3 }', "f", "3"),
]


@pytest.mark.parametrize(("text", "name", "arguments"), OBJECTS)
def test_objects_of_calls(text: str, name: str, arguments: str) -> None:
    for pieces in (list(text), [text]):
        call, found = CallObject(), ""
        for piece in pieces:
            assert call.feed(piece, 0) == len(piece)
            found += call.take()
        assert (call.done, call.broken, call.name, found) == (True, False, name, arguments)


NO_CALLS = [
    '{"a": 1}', '{"name": 3}', '{"name": ""}', "{}", '{"name" "f"}', "[", '{"name": "f", "arguments": }', "{x}",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_CALLS)
def test_objects_that_are_no_calls(text: str) -> None:
    for pieces in (list(text), [text]):
        call = CallObject()
        for piece in pieces:
            call.feed(piece, 0)
        assert call.broken or not call.done
        assert not call.done


def python_json(text: str) -> str | None:
    """The JSON of a Python literal, by Python's own parser."""
    try:
        value = ast.literal_eval(text)
        return json.dumps(list(value) if isinstance(value, set) else value, ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError):
        return None


def python_value(text: str, pieces: list[str]) -> str | None:
    reader, found = PythonValue(), ""
    held = ""
    for piece in [*pieces, ")"]:
        held += piece
        held = held[reader.feed(held, 0) :]
        found += reader.take()
    return found if reader.done and held == ")" else None


LITERALS = [
    "1", "-1.5", "+2", "1_000", "0x1f", "1e3", ".5", "5.", "True", "None", "'a'", '"a\'b"', "'a\\'b'",
    "'\\x41\\u00e9\\n\\101\\0'",
    "'''a'b''c'''", '""', "''", "'a' 'b'", "r'\\d'", "'\\q'", "[]", "[1, 'a', [2]]", "[1,]", "()", "(1)", "(1,)", "(1, 2)", "{}",
    "{'a': 1}", "{'a': {'b': [1, None]}, 'c': 'd',}", "{1: 2}", "{True: 1}", "{1}", "{'a'}", "'\\N{BULLET}'", "[('a', 1)]",
    "'{x}'", "((1))", "{'a': (1, 2)}", "'\\U0001F600'", "'tab\\there'", "'é'", "  [ 1 , 2 ]  ",
]  # fmt: skip
NOT_LITERALS = ["", "x", "f(1)", "1 + 2", "[1", "07", "{'a': }", "{'a'}: 1", "{'a', 'b': 1}", "[1 2]", "b'a'", "a'b'", "1j",
                "{[1]: 2}", "(", "1]", "[1)", "f'{x}'", ",", "[,]", "1e999", "{1: 2, 3}", "--1x"]  # fmt: skip


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("text", LITERALS)
def test_python_literals(text: str) -> None:
    assert python_json(text.strip()) is not None
    assert python_value(text, list(text)) == python_value(text, [text]) == python_json(text.strip())


@pytest.mark.parametrize("text", NOT_LITERALS)
def test_what_is_no_python_literal(text: str) -> None:
    assert python_value(text, list(text)) is None
    assert python_value(text, [text]) is None


NAMES = [
    ("'\\N{LATIN SMALL LETTER R WITH TILDE}'", '"\\\\N{LATIN SMALL LETTER R WITH TILDE}"'),     # two characters
    ("'\\N{NOBODY}'", '"\\\\N{NOBODY}"'),
    ("'\\N'", '"\\\\N"'),
    (f"'\\N{{{'A' * 200}}}'", f'"\\\\N{{{"A" * 200}}}"'),
]


@pytest.mark.parametrize(("text", "expected"), NAMES)
def test_names_of_no_character_are_text(text: str, expected: str) -> None:
    assert python_value(text, list(text)) == python_value(text, [text]) == expected


@given(value=values(False), sizes=SIZES)
@example(value={"a": [1, {"b": None}], "c": "é\n'\""}, sizes=[1])
def test_python_writes_and_this_reads(value: Any, sizes: list[int]) -> None:
    text = repr(value)
    assert python_value(text, cut_up(text, sizes)) == json.dumps(value, ensure_ascii=False)


TYPES = [
    ({"type": "string"}, {"string"}),
    ({}, {"string"}),
    (None, {"string"}),
    ({"type": ["integer", "null"]}, {"integer", "null"}),
    ({"enum": [1, "a", None, True, 1.5, [], {}]}, {"integer", "string", "null", "boolean", "number", "array", "object"}),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
]


@pytest.mark.parametrize(("schema", "types"), TYPES)
def test_types_of_schemas(schema: Any, types: set[str]) -> None:
    assert types_of(schema) == types


COERCED = [
    ("3", "integer", 3), ("x", "integer", "x"), ("3.0", "number", 3), ("3.5", "number", 3.5), ("inf", "number", "inf"),
    ("true", "boolean", True), ("0", "boolean", False), ("maybe", "boolean", "maybe"), ("null", "null", None),
    ('{"a": [1]}', "object", {"a": [1]}), ("[1e999]", "array", "[1e999]"), ("12", "string", "12"), ("7", "int64", 7),
    ("[1]", "list", [1]), ('"a"', "integer", "a"), ("True ", "bool", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "value"), COERCED)
def test_texts_by_type(text: str, kind: str, value: Any) -> None:
    found = coerced(text, frozenset({kind}))
    assert (found, type(found)) == (value, type(value))


def test_the_first_type_that_fits() -> None:
    assert coerced("3", frozenset({"string", "integer"})) == 3
    assert coerced("x", frozenset({"string", "integer", "null"})) == "x"


PROPERTIES = {
    "n": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object", "properties": {"b": {"type": "boolean"}}},
    "l": {"type": "array", "items": {"type": "number"}},
}  # fmt: skip
CORRECTED = [
    ('{"n": "3"}', '{"n": 3}'), ('{"n":3}', '{"n":3}'), ('{"s": 3}', '{"s": "3"}'),
    ('{"o": {"b": "true"}}', '{"o": {"b": true}}'),
    ('{"l": ["1", 2]}', '{"l": [1, 2]}'), ('{"x": "3"}', '{"x": "3"}'), ("[1]", "[1]"), ('{"n": ', '{"n": '),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), CORRECTED)
def test_arguments_are_corrected(arguments: str, expected: str) -> None:
    assert corrected(arguments, PROPERTIES) == expected


def test_typed_arguments_piece_by_piece() -> None:
    arguments = TypedArguments({"city": {"type": "string"}, "days": {"type": "integer"}}, trim=True)
    assert arguments.begin("city") == '{"city": "'
    assert arguments.add("\nPa") == "Pa"
    assert arguments.add('r"is\n') == 'r\\"is'
    assert arguments.add("x\n") == "\\nx"
    assert arguments.begin("days") == '", "days": '
    assert arguments.add("\n3\n") == ""
    assert arguments.close() == "3}"


def test_typed_arguments_as_a_whole_leave_out_what_is_open() -> None:
    arguments = TypedArguments({"city": {"type": "string"}}, whole=True)
    assert arguments.begin("city") + arguments.add("Paris") == ""
    assert arguments.begin("other") == '{"city": "Paris"'
    assert arguments.add("x") == ""
    assert arguments.close(abandon=True) == "}"
