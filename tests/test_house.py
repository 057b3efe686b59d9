"""The house rules that a script can see: which room may use which, and what importing costs."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import elsewhere

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "elsewhere"
DOORS = {"__init__", "__main__", "_version"}
"""The package's own files: they open the house and carry its version, and are no room."""
ROOMS = {
    entry.stem
    for entry in SOURCE.iterdir()
    if entry.suffix == ".py" or (entry.is_dir() and entry.name != "__pycache__")
} - DOORS
MAY_USE = {
    "errors": set(),
    "untrusted": {"errors"},
    "files": {"errors", "untrusted"},
    "registry": {"errors"},
    "tables": {"errors", "untrusted", "files"},
    "privacy": {"errors", "untrusted", "files"},
    "protocols": {"errors", "registry"},
    "statistics": {"errors", "protocols"},
    "boxes": {"errors"},
    "ensembles": {"errors", "statistics", "boxes"},
    "inputs": {"errors", "untrusted", "files", "registry"},
    "cohort": {"errors", "untrusted", "files", "registry", "tables", "inputs"},
    "predictions": {"errors", "untrusted", "files", "registry", "tables", "inputs", "cohort"},
    "scoring": {"errors", "registry", "tables", "protocols", "statistics", "cohort", "predictions"},
    "phantom": {
        "errors",
        "untrusted",
        "files",
        "tables",
        "statistics",
        "inputs",
        "cohort",
        "predictions",
        "scoring",
    },
    "simulation": {"errors", "protocols", "statistics", "cohort", "scoring", "phantom"},
    "scenarios": {"errors", "tables", "cohort"},
    "engine": {"errors", "untrusted", "files", "registry", "inputs", "predictions"},
    "networks": {"errors"},
    "curation": {"errors", "files", "inputs", "cohort", "networks"},
    "training": {"errors", "boxes", "inputs", "engine", "networks"},
    "radiomics": {"errors", "inputs"},
    "recipes": {
        "errors",
        "registry",
        "boxes",
        "inputs",
        "predictions",
        "engine",
        "networks",
        "training",
        "radiomics",
    },
    "studies": set(),
    "study": {
        "errors",
        "untrusted",
        "files",
        "registry",
        "tables",
        "privacy",
        "protocols",
        "statistics",
        "inputs",
        "cohort",
        "predictions",
        "scoring",
        "phantom",
        "scenarios",
        "engine",
        "networks",
        "training",
        "recipes",
        "studies",
    },
    "analysis": {
        "errors",
        "untrusted",
        "files",
        "registry",
        "tables",
        "privacy",
        "protocols",
        "statistics",
        "ensembles",
        "inputs",
        "cohort",
        "predictions",
        "scoring",
        "recipes",
        "study",
    },
    "report": {
        "errors",
        "untrusted",
        "files",
        "registry",
        "tables",
        "privacy",
        "protocols",
        "inputs",
        "predictions",
        "scoring",
        "study",
        "analysis",
    },
    "results": {"files", "tables", "privacy", "analysis", "report"},
    "explain": {"errors", "engine", "networks", "training", "recipes", "study", "analysis", "report"},
    "commands": {
        "errors",
        "untrusted",
        "files",
        "tables",
        "privacy",
        "inputs",
        "protocols",
        "statistics",
        "cohort",
        "predictions",
        "scoring",
        "phantom",
        "simulation",
        "scenarios",
        "engine",
        "networks",
        "curation",
        "training",
        "recipes",
        "explain",
        "analysis",
        "report",
        "results",
        "study",
    },
    "cli": {"errors", "untrusted", "files", "tables", "engine", "commands"},
}
"""What each room may use beside itself. The engine finds the training by its name when it trains."""
LAYERS = {
    "analysis": {
        "result": set(),
        "ranking": {"result"},
        "readers": {"result"},
        "generalise": set(),
        "merging": {"result", "ranking"},
        "study": {"result", "ranking"},
    },
    "report": {
        "page": set(),
        "result": {"page"},
        "leaderboard": {"page", "result"},
        "readers": {"page", "result"},
        "generalise": {"page", "result"},
        "study": {"page", "result", "leaderboard"},
        "stain": {"page", "result"},
        "curation": {"page", "result"},
        "summary": {"page", "result", "leaderboard", "readers", "generalise"},
    },
    "commands": {
        "advice": set(),
        "output": set(),
        "run": {"output", "study_report"},
        "study_report": {"output"},
        "plan": {"output"},
        "score": set(),
        "summarise": set(),
        "accept": {"advice"},
        "check": {"advice", "output"},
        "rank": {"advice"},
        "merge": {"advice"},
        "demo": {"output", "run", "score", "summarise"},
        "slide_store": {"output", "slide_patches"},
        "curate": {"output", "slide_patches"},
        "slide_stain": {"output", "slide_store"},
        "slide_training": {"output", "slide_patches"},
    },
}
"""Inside a room: what each folder or file may use of the others. A file of `commands` that is not listed uses
`output` alone."""
COMPILED = {"numba.njit", "Kernel"}
"""Decorators of functions that are compiled and can take numbers and arrays alone."""
MOST_PARAMETERS = 8
MOST_LINES = 500
"""Of code, docstrings not counted."""
LONG_LISTS = {
    "engine/run.py": {"run_units"},
    "explain/run.py": {"look_at_run"},
    "recipes/running.py": {"train_all"},
    "study/file/loading.py": {"load_study"},
    "training/fused_vit/attention.py": {"attention_backward"},
    "training/fused_vit/layer_norm.py": {"norm_backward"},
    "training/volumes/fitting.py": {"fit"},
    "training/volumes/planning.py": {"make_plan"},
    "training/volumes/preparing.py": {"prepare"},
    "training/volumes/windows.py": {"predict"},
}
"""Functions that still take more parameters than they may. Nothing is added to this list."""
TRAVELS = (
    "untrusted",
    "files",
    "boxes",
    "inputs",
    "predictions/answers",
    "engine",
    "networks",
    "training",
    "radiomics",
    "recipes",
)
"""Rooms that also run on a machine with torch and little else."""
MAY_TRAVEL = {"torch", "torchvision", "numpy", "scipy", "pandas", "sklearn", "PIL", "isal", "elsewhere"}
WHERE_IT_IS = {
    "inputs": {"pydicom", "imagecodecs", "openslide", "numba", "tifffile", "cv2"},
    "networks": {"timm"},
    "training": {"monai", "nibabel", "triton"},
    "recipes": {"monai", "nibabel", "xgboost", "nnunetv2", "pynvml"},
}
"""What a function of these rooms may ask for, and do without or refuse: never at import."""
STAYS = [
    "pyarrow",
    "numba",
    "pydantic",
    "typer",
    "rich",
    "matplotlib",
    "nibabel",
    "openpyxl",
    "monai",
    "xgboost",
    "isal",
    "ray",
    "pydicom",
    "imagecodecs",
    "openslide",
    "tifffile",
    "cv2",
]
"""What the rest of the package needs and such a machine lacks."""


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere below, `from elsewhere import x` as elsewhere.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                [f"elsewhere.{alias.name}" for alias in node.names]
                if node.module == "elsewhere"
                else [node.module]
            )
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports_at_once(tree: ast.Module) -> Iterator[str]:
    """What is imported when the module is: not inside functions, and not for the type checker alone."""

    def at_once(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from at_once(child)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for child in ast.iter_child_nodes(node):
                yield from at_once(child)

    return at_once(tree)


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports_of(file: Path) -> tuple[str, ...]:
    """Several tests ask for them, and parsing the whole house takes seconds."""
    return tuple(imports(parse(file)))


def imported_rooms(file: Path) -> set[str]:
    names = imports_of(file)
    return {name.split(".")[1] for name in names if name.startswith("elsewhere.")} & ROOMS


def files_of(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py")) if (SOURCE / room).is_dir() else [SOURCE / f"{room}.py"]


def listed_rooms() -> list[str]:
    """The rooms in CONTRIBUTING.md, in its order."""
    block = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[1].splitlines()
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in block if line.startswith("  ")]


def test_the_list_of_rooms_is_the_house():
    assert sorted(listed_rooms()) == sorted(ROOMS)
    assert sorted(MAY_USE) == sorted(ROOMS)


def test_a_room_uses_only_rooms_that_stand_above_it_in_the_list():
    order = listed_rooms()
    upwards = [
        (room, used) for room in order for used in MAY_USE[room] if order.index(used) >= order.index(room)
    ]
    assert upwards == []


@pytest.mark.parametrize("room", MAY_USE)
def test_dependencies_point_one_way(room):
    wrong = {
        str(file.relative_to(SOURCE)): sorted(strange)
        for file in files_of(room)
        if (strange := imported_rooms(file) - MAY_USE[room] - {room})
    }
    assert wrong == {}


def layer_of(room: str, module: str) -> str:
    """The folder or file of a room that a module lies in: elsewhere.report.page.blocks -> page."""
    parts = module.removeprefix(f"elsewhere.{room}").strip(".").split(".")
    return parts[0]


@pytest.mark.parametrize("room", LAYERS)
def test_inside_a_room_dependencies_point_one_way_too(room):
    rules = LAYERS[room]
    wrong: dict[str, set[str]] = {}
    for file in files_of(room):
        own = layer_of(room, ".".join(("elsewhere", *file.relative_to(SOURCE).with_suffix("").parts)))
        if own == "__init__":
            continue
        used = {layer_of(room, name) for name in imports_of(file) if name.startswith(f"elsewhere.{room}.")}
        allowed = rules.get(own, {"output"} if room == "commands" else set()) | {own}
        if used - allowed:
            wrong[str(file.relative_to(SOURCE))] = used - allowed
    assert wrong == {}


@pytest.mark.parametrize("room", ["analysis", "report"])
def test_every_layer_of_a_room_is_listed(room):
    inside = {
        entry.stem
        for entry in (SOURCE / room).iterdir()
        if (entry.is_dir() and any(entry.glob("*.py"))) or entry.suffix == ".py"
    }
    assert inside - {"__init__"} <= set(LAYERS[room])


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Private names of other modules of this package: imported, or read from an imported module."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elsewhere"):
            names = [alias.name for alias in node.names]
            modules |= {alias.asname or alias.name for alias in node.names}
            yield from (f"{node.module}.{name}" for name in names if is_private(name))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if is_private(node.attr) and node.value.id in modules:
            yield f"{node.value.id}.{node.attr}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_version"


def test_no_private_name_is_imported_from_another_module():
    found = {
        str(file.relative_to(SOURCE)): names
        for file in SOURCE.rglob("*.py")
        if (names := sorted(set(private_imports(parse(file)))))
    }
    assert found == {}


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return count - bool(given.args and given.args[0].arg in ("self", "cls"))


def is_compiled(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).split("(")[0] in COMPILED for decorator in function.decorator_list)


def test_options_travel_as_objects():
    """Commands and the command line name every option; everything below takes an object in their place."""
    long: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        if file.relative_to(SOURCE).parts[0] in ("cli", "commands"):
            continue
        for node in ast.walk(parse(file)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_compiled(node):
                continue
            if parameters_of(node) > MOST_PARAMETERS:
                long.setdefault(str(file.relative_to(SOURCE)), set()).add(node.name)
    assert long == LONG_LISTS


def test_the_travelling_rooms_know_torch_numpy_scipy_pandas_sklearn_and_pillow_alone():
    wrong = {}
    for room in TRAVELS:
        for file in (SOURCE / room).rglob("*.py"):
            known = MAY_TRAVEL | WHERE_IT_IS.get(room, set()) | sys.stdlib_module_names
            if room == "engine" and file.name.startswith("ray"):
                known = known | {"ray"}
            strange = sorted({name.split(".")[0] for name in imports_of(file)} - known)
            if strange:
                wrong[str(file.relative_to(SOURCE))] = strange
    assert wrong == {}


def test_torch_is_loaded_by_models_and_training_alone_and_ray_by_nobody_at_once():
    wrong = {}
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0]
        late = {"ray", *WHERE_IT_IS.get(room, set())}
        late |= set() if room in ("networks", "training") else {"torch", "torchvision"}
        early = sorted({name.split(".")[0] for name in imports_at_once(parse(file))} & late)
        if early:
            wrong[str(file.relative_to(SOURCE))] = early
    assert wrong == {}


def test_the_engine_loads_training_only_when_it_trains():
    early = {
        str(file.relative_to(SOURCE)): name
        for file in (SOURCE / "engine").rglob("*.py")
        for name in imports_at_once(parse(file))
        if name.startswith(("elsewhere.training", "elsewhere.networks"))
    }
    assert early == {}


def import_without(modules: list[str], absent: list[str]) -> str:
    """Import the modules where the absent packages cannot be found; what went wrong, or nothing."""
    code = (
        "import importlib, sys\n"
        f"absent = {sorted(absent)!r}\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in absent:\n"
        "            raise ModuleNotFoundError(f'no {name} here', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "assert not set(absent) & {name.split('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr


def modules_of(*rooms: str) -> list[str]:
    return [
        ".".join(("elsewhere", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for room in rooms
        for file in sorted((SOURCE / room).rglob("*.py"))
        if file.name != "__main__.py"
    ]


def test_inputs_and_engine_import_with_numpy_and_pillow():
    absent = [*STAYS, "torch", "torchvision", "pandas", "sklearn", "scipy"]
    assert import_without(modules_of("inputs", "engine"), absent) == ""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch: the extra 'train'")
def test_training_imports_with_torch_and_little_else():
    assert import_without(modules_of(*TRAVELS), STAYS) == ""


def test_an_absent_package_is_noticed():
    assert "no pyarrow here" in import_without(["elsewhere.tables"], STAYS)


def test_scoring_a_table_needs_no_torch_and_no_matplotlib():
    code = (
        "import sys, numpy as np, elsewhere\n"
        "rng = np.random.default_rng(0); y = np.arange(60) % 2\n"
        "r = elsewhere.score_arrays('classification', label=y, probability=np.clip(y * 0.3 + rng.random(60) * 0.6, 0, 1), resamples=0)\n"
        "assert r.metrics['auroc']['value'] > 0.5\n"
        "print([m for m in ('torch', 'matplotlib', 'monai', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def lines_of_code(file: Path) -> int:
    """The lines of a file without its docstrings: explaining a function does not make a file too long."""
    tree = parse(file)
    count = len(file.read_text(encoding="utf-8").splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node) is not None and first is not None:
                count -= (first.end_lineno or first.lineno) - first.lineno + 1
    return count


def test_no_file_is_left_to_grow():
    long = {
        str(file.relative_to(SOURCE)): lines
        for file in SOURCE.rglob("*.py")
        if (lines := lines_of_code(file)) > MOST_LINES
    }
    assert long == {}


def test_the_citation_is_of_this_version():
    lines = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {elsewhere.__version__}" in lines
