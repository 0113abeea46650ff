"""A short, fixed run of each fuzzer; `make fuzz` runs them for minutes or hours."""

from __future__ import annotations

import pytest
from fuzz.__main__ import corpus, make_input, try_input
from fuzz.targets import TARGETS

INPUTS = {
    "decoders": 3000,
    "importers": 150,
    "http": 300,
    "sqlite-rows": 40,
    "jsonl-lines": 40,
    "damage": 30,
    "workspaces": 40,
}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_input_ends_in_a_typed_error_or_the_right_result(target: str) -> None:
    for number in range(INPUTS[target]):
        problem = try_input(target, make_input(target, number))
        assert problem is None, f"python -m fuzz --only {target} --input {number}\n{problem}"


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_once_went_wrong_are_tried_again(target: str) -> None:
    for path in corpus(target):
        problem = try_input(target, path.read_bytes())
        assert problem is None, f"python -m fuzz --only {target} --file {path}\n{problem}"


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_number_makes_the_same_input_in_one_run(target: str) -> None:
    assert make_input(target, 7) == make_input(target, 7)
    assert make_input(target, 7) != make_input(target, 8)
