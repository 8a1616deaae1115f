"""--hf-overrides: the model is the one that config.json would describe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.model.errors import ModelError
from engine.model.loader import max_positions, read_config
from tests.engine.offline import generate, make_prompts

pytestmark = pytest.mark.filterwarnings("default")
TinyModel = Callable[..., Path]
PROMPTS = make_prompts(5, [30, 9])


@pytest.mark.parametrize(
    "overrides",
    [{"num_hidden_layers": 1}, {"rope_theta": 50.0}, {"rope_parameters": {"rope_type": "linear", "factor": 8.0}}],
)
def test_answers_are_those_of_a_folder_that_says_so(tiny_model: TinyModel, tmp_path: Path, overrides: dict[str, Any]) -> None:
    folder = tiny_model("llama")
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rope = {**config["rope_parameters"], **{name: value for name, value in overrides.items() if name == "rope_theta"}}
    config |= {"rope_parameters": rope, **overrides}
    config["rope_parameters"].setdefault("rope_theta", rope["rope_theta"])
    (changed / "config.json").write_text(json.dumps(config), encoding="utf-8")
    wanted, _ = generate(changed, PROMPTS, max_len=64)
    assert generate(folder, PROMPTS, max_len=64, overrides=overrides)[0] == wanted
    assert generate(folder, PROMPTS, max_len=64)[0] != wanted


def test_lengths(tiny_model: TinyModel) -> None:
    folder = str(tiny_model("llama"))
    length = max_positions(read_config(folder))
    assert length is not None
    assert max_positions(read_config(folder, {"max_position_embeddings": 99})) == 99
    assert max_positions(read_config(folder, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}})) == 2 * length
    assert max_positions(read_config(folder, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}})) == length


@pytest.mark.parametrize("overrides", [{"model_type": "nobody"}, {"rope_parameters": 5}, {"num_hidden_layers": "x"}])
def test_what_describes_no_model_is_refused_by_the_flag(tiny_model: TinyModel, overrides: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"config\.json with --hf-overrides: "):
        read_config(str(tiny_model("llama")), overrides)
