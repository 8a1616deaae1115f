"""Which processes a server consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fastfront.config import EngineKind, ServeConfig
from fastfront.engine_client.addresses import tcp_host


@dataclass(frozen=True, slots=True)
class Planned:
    """A process by the title that ps shows, and those it starts."""

    title: str
    children: tuple[Planned, ...] = ()
    note: str = ""

    def titles(self) -> list[str]:
        """Titles of the process and of all below it."""
        return [self.title, *(title for child in self.children for title in child.titles())]


class Kind(NamedTuple):
    """One kind of engine: the title of its process, `{engine}` being its index, and of each of its workers."""

    title: str
    worker: str | None
    note: str = ""


# Workers are processes of their own where an engine has several; a single one runs inside the engine core.
KINDS: dict[EngineKind, Kind | None] = {
    "native": Kind("fastfront::engine-core-{engine}", "fastfront::worker-{engine}-{rank}"),
    "mock": Kind("fastfront::mock-engine-{engine}", None),
    "vllm": Kind("fastfront::vllm-engine-{engine}", None, "vLLM and what it starts"),
    "external": None,                           # started by somebody else
}  # fmt: skip


def engines(config: ServeConfig) -> tuple[Planned, ...]:
    """The local engines with their workers."""
    kind = KINDS[config.engine]
    if kind is None:
        return ()
    ranks = config.tensor_parallel_size
    apart = ranks > 1 or "mp" in value_of(config.engine_args, "--distributed-executor-backend")
    return tuple(
        Planned(
            kind.title.format(engine=engine),
            tuple(Planned(kind.worker.format(engine=engine, rank=rank)) for rank in range(ranks))
            if kind.worker is not None and apart
            else (),
            kind.note,
        )
        for engine in config.local_ranks
    )


def value_of(words: tuple[str, ...], flag: str) -> str:
    """The value of a flag among words, "" without it."""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if word.partition("=")[0] == flag:
            return word.partition("=")[2] or following
    return ""


def headless_tree(config: ServeConfig) -> Planned:
    """All processes of engines without a frontend."""
    children = tuple(
        Planned(f"fastfront::keeper-{rank}", (engine,)) for rank, engine in zip(config.local_ranks, engines(config), strict=True)
    )
    return Planned(headless_title(config), children)


def headless_title(config: ServeConfig) -> str:
    """Title of the process that keeps engines without a frontend."""
    return f"fastfront engines {config.served_model_name[0]}"


def tree(config: ServeConfig) -> Planned:
    """All processes of a server. The frontend's title is without the port if the system chooses it."""
    where = f"unix:{config.uds}" if config.uds else f"{tcp_host(config.host)}:{config.port or ''}"
    return Planned(f"fastfront serve {config.served_model_name[0]} {where}", engines(config))


def describe(config: ServeConfig, headless: bool = False) -> str:
    """The processes as text: one line each, children indented, then their number."""
    root = headless_tree(config) if headless else tree(config)
    lines = [root.title]

    def draw(process: Planned, indent: str) -> None:
        for child in process.children:
            last = child is process.children[-1]
            lines.append(f"{indent}{'└─ ' if last else '├─ '}{child.title}{child.note and f'  ({child.note})'}")
            draw(child, indent + ("   " if last else "│  "))

    draw(root, "")
    total, cores = len(root.titles()), len(root.children)
    workers = total - 1 - cores * (2 if headless else 1)
    first = f"1 for all, {counted(cores, 'keeper')}" if headless else "1 frontend"
    lines.append(f"{counted(total, 'process', 'es')}: {first}, {counted(cores, 'engine')}, {counted(workers, 'worker')}")
    at = f"{tcp_host(config.data_parallel_address)}:{config.data_parallel_rpc_port}"
    elsewhere = len(config.ranks) - cores
    if headless:
        lines.append(f"they join a frontend at {at}")
    elif config.data_parallel_lb != "internal":
        lines.append(f"{_named(config.ranks)} served here, the others of {config.data_parallel_size} by frontends of their own")
        if config.steps_together:
            lines.append(f"all step together: {'the others' if config.is_head else 'these'} join at {at}")
    elif elsewhere:
        lines.append(f"{counted(elsewhere, 'engine')} from elsewhere: they join at {at}")
    return "\n".join(lines)


def _named(ranks: range) -> str:
    return f"rank {ranks.start} is" if len(ranks) == 1 else f"ranks {ranks.start} to {ranks.stop - 1} are"


def counted(number: int, what: str, plural: str = "s") -> str:
    """`1 engine`, `2 engines`."""
    return f"{number} {what}{'' if number == 1 else plural}"
