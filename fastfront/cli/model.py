"""What MODEL means: an alias, a folder, a GGUF file, or the id of a repository on the Hugging Face hub."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastfront.config import cache_folder
from fastfront.engine_client.commands import PROJECT, default_engine_python
from fastfront.errors import SetupError

ALIASES = {"smollm2": "smollm2"}  # to the folder's name below <cache>/models
_FRONTEND_FILES = (
    "*.json", "*.jinja", "additional_chat_templates/*.jinja", "tokenizer.model",
)  # fmt: skip
_OTHER_FORMS = ("original/*", "consolidated*.safetensors")  # the same weights once more, as their makers keep them


@dataclass(frozen=True, slots=True)
class Hub:
    """What to ask the hub with: a token, or True for the one that is stored; and whether the weights are wanted too."""

    token: str | Literal[True] | None = None
    weights: bool = False


def resolve_model(model: str, revision: str | None = None, engine_python: str | None = None, hub: Hub | None = None) -> Path:
    """The folder with the model's configuration and tokenizer; the hub is asked only for what is no folder here.

    A GGUF file is converted into a folder in the cache, by `engine_python` or what set-up made, unless that has been done.
    Raises SetupError with what was tried and what to do.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.suffix == ".gguf" or folder.is_file():
        return _from_gguf(folder, engine_python)
    if model in ALIASES:
        made = cache_folder() / "models" / ALIASES[model]
        if made.is_dir():
            return made.resolve()
        raise SetupError(f"model {model}: {made} does not exist; `make setup` fetches it")
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise SetupError(
            f"model {model}: no such folder, and neither an alias ({', '.join(ALIASES)}) nor a hub id (OWNER/NAME)"
        )
    return _from_hub(model, revision, hub or Hub())


def _from_gguf(file: Path, engine_python: str | None) -> Path:
    if not file.is_file():
        raise SetupError(f"model {file}: no such file")
    if file.suffix != ".gguf":
        raise SetupError(f"model {file}: a file, but no .gguf; give a folder, a GGUF file, an alias or a hub id")
    command = [default_engine_python(engine_python), "-m", "engine.convert.gguf", "--cached", str(file.resolve())]
    try:
        done = subprocess.run(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise SetupError(f"model {file}: {command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0 or not done.stdout.strip():
        raise SetupError(f"model {file}: cannot be converted, see the message above")
    return Path(done.stdout.splitlines()[-1])


def _from_hub(model: str, revision: str | None, hub: Hub) -> Path:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import and rarely needed
    except ImportError as error:
        raise SetupError(f"model {model}: fetching from the hub needs the package huggingface-hub ({error})") from error
    try:
        wanted = [*_FRONTEND_FILES, *(["*.safetensors"] if hub.weights else [])]
        return Path(
            snapshot_download(
                model, revision=revision, token=hub.token, allow_patterns=wanted, ignore_patterns=list(_OTHER_FORMS)
            )
        )
    except Exception as error:  # network errors of several libraries, and the hub's own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise SetupError(
            f"model {model}: not a folder here, and the hub could not give it ({type(error).__name__}: {reason}). "
            "Give a local folder, or check the network and --hf-token."
        ) from error
