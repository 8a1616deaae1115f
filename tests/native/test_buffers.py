"""The byte buffer: numbers and growth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront._speedups.buffers import int_text, joined


@pytest.mark.parametrize("value", [0, 1, -1, 9, 10, -10, 2**31, 2**63 - 1, -(2**63), 10**18])
def test_integers_are_written_as_python_writes_them(value: int) -> None:
    assert int_text(value) == str(value).encode()


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_64_bit_integer(value: int) -> None:
    assert int_text(value) == str(value).encode()


@given(st.lists(st.binary(max_size=400), max_size=40))
def test_growth_keeps_every_byte(parts: list[bytes]) -> None:
    assert joined(parts) == b"".join(parts)
