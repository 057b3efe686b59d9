"""Every example of README.md and docs/ runs, in a temporary folder, page by page, in order.

- A ```python block is executed; the blocks of a page share their names. A ```text block right after it is
  what it prints.
- In a ```console or ```bash block, lines that start with `$ elsewhere` (or, in bash, `elsewhere`) are run
  through the command line. `# exit 2` at the end of the line is the exit code that is expected, else 0.
  Lines under a command are lines of its output, in order; `...` stands for anything, and a number with a
  decimal point may differ in its third digit.
- `<!-- demo -->` in a page means that its reader has run `make demo`: the folder `demo-out` is there.
- `<!-- slow -->` in a page means that its examples train: they run with the slow tests, and so do `SLOW_PAGES`.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW_PAGES = {
    "docs/footguns.md",
    "docs/how-to/merge-detections.md",
    "docs/how-to/score-a-challenge-submission.md",
    "docs/how-to/use-a-kept-model.md",
    "docs/how-to/explain.md",
    "docs/how-to/run-a-study.md",
    "docs/how-to/make-synthetic-hospitals.md",
    "docs/how-to/run-the-tomosynthesis-study.md",
    "docs/how-to/accept-a-vendor-model.md",
    "docs/how-to/analyse-a-reader-study.md",
}
"""Their examples take seconds each and run with the slow tests; tests/commands and tests/study run the same commands."""
_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_EXIT = re.compile(r"\s+#\s*exit\s+(\d+)\s*$")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_CLOSE = 0.0051


@dataclass
class Block:
    """A fenced block: its language, its lines, and the line of the page on which it starts."""

    language: str
    lines: list[str]
    at: int
    follows_python: bool = False


@dataclass
class Step:
    """One thing to run: a command line or a python block, and what the page says comes out."""

    kind: str
    source: str
    at: int
    exit_code: int = 0
    expected: list[str] = field(default_factory=list)
    expected_at: list[int] = field(default_factory=list)


def blocks_of(text: str) -> list[Block]:
    found: list[Block] = []
    inside: Block | None = None
    since_python = False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if inside is None:
            if fence:
                inside = Block(fence[2], [], number, follows_python=since_python)
            elif line.strip():
                since_python = False
        elif fence and not fence[2]:
            found.append(inside)
            since_python = inside.language == "python"
            inside = None
        else:
            inside.lines.append(line)
    assert inside is None, f"the block of line {inside.at if inside else 0} has no end"
    return found


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    for block in blocks_of(text):
        if block.language == "python":
            steps.append(Step("python", "\n".join(block.lines), block.at))
        elif block.language == "text" and block.follows_python:
            steps[-1].expected = list(block.lines)
            steps[-1].expected_at = [block.at + 1 + i for i in range(len(block.lines))]
        elif block.language in ("console", "bash"):
            steps += _commands(block)
    return steps


def _commands(block: Block) -> list[Step]:
    steps: list[Step] = []
    current: Step | None = None
    continued = False
    for offset, raw in enumerate(block.lines):
        at = block.at + 1 + offset
        if continued and current is not None:
            current.source += " " + raw.strip()
        else:
            start = raw.removeprefix("$ ") if block.language == "bash" or raw.startswith("$ ") else ""
            if start.startswith("elsewhere "):
                current = Step("command", start, at)
                steps.append(current)
            elif raw.startswith("$ ") or block.language == "bash":
                current = None
            elif current is not None:
                current.expected.append(raw)
                current.expected_at.append(at)
        if current is not None and not current.expected:
            continued = current.source.endswith("\\")
            current.source = current.source.removesuffix("\\").rstrip()
        else:
            continued = False
    for step in steps:
        mark = _EXIT.search(step.source)
        if mark:
            step.exit_code, step.source = int(mark[1]), step.source[: mark.start()]
    return steps


class Runner:
    """Runs the steps of one page; python blocks share their names."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {"__name__": "__docs__"}

    def run(self, step: Step, *, page: str) -> tuple[int, list[str]]:
        out = io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if step.kind == "python":
                exec(compile(step.source, f"{page}:{step.at}", "exec", dont_inherit=True), self.names)
            else:
                from elsewhere.cli import main

                try:
                    main(shlex.split(step.source, comments=True)[1:])
                except SystemExit as end:
                    code = int(end.code or 0)
        return code, out.getvalue().splitlines()


def _same(expected: str, actual: str) -> bool:
    want, have = " ".join(expected.split()), " ".join(actual.split())
    wanted_numbers = [m[0] for m in _NUMBER.finditer(want)]
    pattern = ""
    for at, part in enumerate(_NUMBER.split(want)):
        pattern += re.escape(part).replace(r"\.\.\.", ".*?")
        if at < len(wanted_numbers):
            exact = not re.search(r"[.eE]", wanted_numbers[at])
            pattern += f"({re.escape(wanted_numbers[at])})" if exact else f"({_NUMBER.pattern})"
    found = re.fullmatch(pattern, have)
    if not found:
        return False
    for one, two in zip(wanted_numbers, found.groups(), strict=True):
        a, b = float(one.replace(",", "")), float(two.replace(",", ""))
        if abs(a - b) > max(_CLOSE, 0.005 * abs(a)):
            return False
    return True


def missing_lines(expected: list[str], actual: list[str]) -> list[str]:
    """The expected lines that do not occur in the output, in order."""
    missing, at = [], 0
    for line in expected:
        if not line.strip() or line.strip() == "...":
            continue
        found = next((i for i in range(at, len(actual)) if _same(line, actual[i])), None)
        if found is None:
            missing.append(line)
        else:
            at = found + 1
    return missing


@pytest.fixture(scope="session")
def demo_folder(made_once) -> Path:
    """What `make demo` writes, from fewer resamples: the files are the same."""
    from elsewhere.commands.demo import demo

    return made_once("demo", lambda folder: demo(folder / "demo-out", resamples=100)) / "demo-out"


@pytest.fixture
def registries_kept():
    """A page may register a task, a metric, a reader, a protocol or an analysis: it is taken away afterwards."""
    from elsewhere.analysis.result.analyses import analyses
    from elsewhere.cohort import readers
    from elsewhere.predictions import answer_kinds
    from elsewhere.protocols import protocols
    from elsewhere.scoring.metrics import metrics
    from elsewhere.scoring.task import tasks

    registries = (readers, analyses, protocols, metrics, tasks, answer_kinds)
    for registry in registries:
        registry.names()
    kept = [(dict(r._things), dict(r._owners)) for r in registries]
    yield
    for registry, (things, owners) in zip(registries, kept, strict=True):
        registry._things, registry._owners = things, owners


def _with_examples() -> list[Path]:
    return [page for page in PAGES if page.exists() and steps_of(page.read_text(encoding="utf-8"))]


def _marked(page: Path):
    name = str(page.relative_to(ROOT))
    slow = name in SLOW_PAGES or "<!-- slow -->" in page.read_text(encoding="utf-8")
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("page", [_marked(page) for page in _with_examples()])
def test_page_runs(page, tmp_path, monkeypatch, request, registries_kept):
    text = page.read_text(encoding="utf-8")
    if "<!-- demo -->" in text:
        shutil.copytree(request.getfixturevalue("demo_folder"), tmp_path / "demo-out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    runner = Runner()
    for step in steps_of(text):
        code, output = runner.run(step, page=page.name)
        where = f"{page.relative_to(ROOT)}, line {step.at}: {step.source.splitlines()[0]}"
        shown = "\n".join(output[-60:])
        assert code == step.exit_code, f"{where}\nexit {code}, expected {step.exit_code}\n{shown}"
        missing = missing_lines(step.expected, output)
        assert not missing, f"{where}\nnot in the output: {missing}\n{shown}"


def _anchor(heading: str) -> str:
    text = re.sub(r"[`*_]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _without_fences(text: str) -> str:
    return re.sub(r"^\s*```.*?^\s*```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_fences(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            broken.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+\s+(.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            if anchor not in {_anchor(h) for h in headings}:
                broken.append(target)
    assert not broken


def test_every_page_can_be_reached():
    """From the index, by links alone."""
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                todo.append((page.parent / target).resolve())
    lost = [
        str(p.relative_to(ROOT))
        for p in PAGES
        if p.exists() and p.is_relative_to(ROOT / "docs") and p not in seen
    ]
    assert not lost


@pytest.fixture(scope="session")
def generated(pickled_once) -> dict[str, str]:
    """Every page that `docs/make_reference.py` writes, by its name."""
    return pickled_once("reference-pages", lambda: _generator("make_reference").pages())


def _generator(name: str):
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "commands.md",
        "metrics.md",
        "protocol-rules.md",
        "python-api.md",
        "recipes.md",
        "rooms.md",
        "rules.md",
        "study-file.md",
    ],
)
def test_generated_reference_is_current(name, generated):
    """`python docs/make_reference.py` writes these pages anew."""
    made = generated[name]
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == made


@pytest.mark.parametrize("name", ["verdict.svg", "first-page.png", "study-page.png"])
def test_the_picture_is_small(name):
    picture = ROOT / "docs" / "images" / name
    assert picture.exists()
    assert picture.stat().st_size < 200_000


def test_the_matcher_can_fail():
    assert _same("  auroc 0.926 [0.907, 0.942]", "auroc   0.925 [0.907, 0.941]")
    assert not _same("auroc 0.926", "auroc 0.946")
    assert not _same("1181 cases", "1180 cases")
    assert _same("report: .../report.html", "report: out/report.html")
    assert missing_lines(["b", "a"], ["a", "b"]) == ["a"]


def test_pages_name_every_protocol_reader_and_verdict():
    from elsewhere.cohort import readers
    from elsewhere.protocols import protocols
    from elsewhere.statistics.verdict import Verdict

    def text(name: str) -> str:
        return (ROOT / "docs" / name).read_text(encoding="utf-8")

    pages = text("reference/protocols.md") + text("reference/protocol-rules.md")
    assert [
        name for name in protocols.names() if f"`{name}`" not in pages and f"## {name}" not in pages
    ] == []
    assert [name for name in readers.names() if name not in text("how-to/read-a-public-dataset.md")] == []
    assert [str(word) for word in Verdict if str(word) not in text("reference/verdicts.md")] == []
