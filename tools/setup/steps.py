"""The steps of each target, in order."""

from __future__ import annotations

from tools.setup.bytecode import bytecode_ready, make_bytecode
from tools.setup.engine_env import engine_env_ready, make_engine_env
from tools.setup.engine_kernels import kernels_ready, make_kernels
from tools.setup.frontend_env import frontend_env_ready, make_frontend_env, make_project, project_ready
from tools.setup.interpreter import interpreter_ready, make_interpreter
from tools.setup.machine import cargo_problem, ensure_cargo, ensure_room
from tools.setup.model import make_model, model_ready
from tools.setup.npm_client import client_ready, make_client
from tools.setup.npm_tokenizers import make_tokenizers, tokenizers_ready
from tools.setup.peers import make_rust, make_vllm, rust_ready, vllm_ready
from tools.setup.plan import Context, Step
from tools.setup.tokenizers_wheel import make_wheel, wheel_kept, wheel_ready
from tools.setup.uv import ensure_uv, uv_ready


def _everything_made(context: Context) -> bool:
    """Whether the parts that take minutes and much space are there, so that nothing has to be checked for them."""
    return interpreter_ready(context) and wheel_ready(context) and engine_env_ready(context)


def _check_machine(context: Context) -> None:
    """Refuse at once what would otherwise fail after minutes: a full disk, a bad FASTFRONT_PYTHON, no Rust."""
    ensure_room(context.paths.cache)
    if not wheel_kept(context):
        if cargo_problem() is not None:
            context.console.note("Rust is needed once, to compile the `tokenizers` package for free-threaded Python")
        ensure_cargo(context)


_CHECK = Step("machine", "this machine", _everything_made, _check_machine)
_UV = Step("uv", "uv", uv_ready, ensure_uv)
_FRONTEND = (
    Step("python", "free-threaded Python", interpreter_ready, make_interpreter),
    Step("tokenizers-wheel", "tokenizers for free-threaded Python", wheel_ready, make_wheel),
    Step("frontend-env", "frontend environment (.venv)", frontend_env_ready, make_frontend_env),
    Step("project", "native extensions", project_ready, make_project),
)
_ENGINE = Step("engine-env", "engine environment (.venv-engine)", engine_env_ready, make_engine_env)
_KERNELS = Step("engine-kernels", "CPU kernels of the engine", kernels_ready, make_kernels)
_MODEL = Step("model", "model smollm2", model_ready, make_model)
_BYTECODE = Step("bytecode", "bytecode of the project", bytecode_ready, make_bytecode)
_TOKENIZERS = Step("test-tokenizers", "tokenizers for the tests", tokenizers_ready, make_tokenizers)
_CLIENT = Step("test-client", "Node.js client for the tests", client_ready, make_client)
_PEERS = (
    Step("peers-vllm", "vLLM's Python frontend", vllm_ready, make_vllm),
    Step("peers-rust", "vLLM's Rust frontend", rust_ready, make_rust),
)

SETUP = (_CHECK, _UV, *_FRONTEND, _ENGINE, _KERNELS, _MODEL, _BYTECODE)
TEST = (*SETUP, _TOKENIZERS, _CLIENT)
TARGETS: dict[str, tuple[Step, ...]] = {
    "setup": SETUP,
    "test": TEST,
    "tokenizers": (_TOKENIZERS,),
    "peers": (_UV, *_PEERS),
    "ext": (_CHECK, _UV, *_FRONTEND, _KERNELS),
}
