"""The graph of imports: each module uses those of the layers below its own, and none is in a cycle."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
# From the bottom up. Those of one line know nothing of each other; "nsfa" is the package's own table of names.
LAYERS = """
    version arrays atomic interrupts
    kernels table
    columns discrete holes elsewhere
    data state units
    directions
    samples
    passing gpu_blocks
    gpu_samples
    model
    latent_samples
    moves metrics filling counts threads matching annotations
    schedule block_devices
    blocks
    draw length
    chain
    draws monitor workers backends
    progress tasks
    runner
    posterior
    saved display
    estimators spca datasets
    readers comparison
    enrichment
    tl pl report
    nsfa
    experiments
    cli
    __main__
"""
RANK = {name: rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split()}
# The same within a package: what answers for a posterior, and what converts it, name its class.
NAMED_ABOVE = {("nsfa.posterior.answers", "nsfa.posterior.core"), ("nsfa.posterior.arviz", "nsfa.posterior.core")}
# Packages whose first module loads the others when asked for one of them.
DOORS = {"nsfa.kernels", "nsfa.experiments"}


@cache
def modules() -> dict[str, Path]:
    named = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


@cache
def text(name: str) -> str:
    return modules()[name].read_text(encoding="utf-8")


def imports(source: str, types: bool) -> set[str]:
    """The modules of this package that a source imports, also within functions; ``types``: and for types alone."""
    tree = ast.parse(source)
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    skipped = set() if types else {node for block in blocks for node in ast.walk(block)}
    found = set()
    for node in set(ast.walk(tree)) - skipped:
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            parts = [(f"{node.module}.{item.name}", str(node.module)) for item in node.names]
            found |= {module if module in modules() else package for module, package in parts}
    return found & set(modules())


def place(name: str) -> str:
    return name.split(".")[1] if "." in name else name


def wrong(name: str, source: str) -> set[str]:
    """What a module of this name and source imports though it is not below it."""
    own = place(name)
    others = {other for other in imports(source, types=True) if place(other) != own}
    return {other for other in others if RANK[place(other)] >= RANK[own]}


def test_every_module_has_a_place():
    assert {place(name) for name in modules()} <= set(RANK)


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_down(name):
    assert wrong(name, text(name)) == set()


def test_no_cycle():
    graph = {name: imports(text(name), types=True) - {name} for name in modules() if name not in DOORS}
    for name, other in NAMED_ABOVE:
        assert other in graph[name] - imports(text(name), types=False)
        graph[name].remove(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"These import each other: {' → '.join(error.args[1])}")


@pytest.mark.parametrize(
    "source",
    [
        "from nsfa.posterior import Posterior",
        "import nsfa.posterior.core",
        "from nsfa import posterior",
        "from nsfa import __version__",
        "def f():\n    from nsfa.saved import load",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nsfa.runner import ChainResult",
        "from nsfa.workers import Worker",
    ],
)
def test_an_import_that_goes_up_is_found(source):
    assert wrong("nsfa.draws.store", source)
    assert not wrong("nsfa.cli.fit", source)
