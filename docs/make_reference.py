"""Write the generated pages of the reference: `python docs/make_reference.py`.

The command line, the metrics and the rules of every protocol are read from the program itself, so that these
pages cannot contradict the program. A test compares them with what this makes.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "reference"
MADE = "<!-- Made by docs/make_reference.py from the program itself; do not edit. -->\n"


def pages() -> dict[str, str]:
    """Every generated page, by file name."""
    return {
        "commands.md": commands(),
        "metrics.md": metrics(),
        "protocol-rules.md": protocol_rules(),
        "python-api.md": python_api(),
        "recipes.md": recipes(),
        "rooms.md": rooms(),
        "rules.md": rules(),
        "study-file.md": study_file(),
    }


_RULE = r"(?:US|MRI|DBT|LN|ST|SL|WSI)-\d{2}[a-z]?"
_RULES_ALONE = re.compile(rf" \({_RULE}(?:(?:, | and | to ){_RULE})*\)")


def _cell(text: str) -> str:
    """One line of a table. A rule id in brackets goes, since the sentence says what it means; others become links."""
    text = _RULES_ALONE.sub("", " ".join(text.split()).replace("|", "\\|"))
    return re.sub(_RULE, lambda found: f"[{found[0]}](rules.md#{found[0].lower()})", text)


def commands() -> str:
    """Every command with its arguments, options, defaults and example."""
    import typer

    from elsewhere.cli import app

    root: Any = typer.main.get_command(app)
    parts = [
        MADE,
        "# Commands\n",
        f"{_cell(root.help)}\n",
        "Every command takes `--json` (one JSON object on stdout and nothing else) and `--help`. "
        "`elsewhere --version` prints the version. Exit codes: [verdicts](verdicts.md#exit-codes).\n",
    ]
    found = list(_walk(root, "elsewhere"))
    parts.append("| command | what it does |\n|---|---|")
    for name, command in found:
        anchor = name.removeprefix("elsewhere ").replace(" ", "-")
        parts.append(f"| [`{name}`](#{_slug(name)}) | {_cell(command.help or anchor)} |")
    for name, command in found:
        parts += ["", f"## {name}", "", _cell(command.help or ""), ""]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name != "argument" and p.name != "help"]
        usage = " ".join([name, *(_argument(p) for p in arguments), "[OPTIONS]"])
        parts += ["```", usage, "```", ""]
        parts += ["| | | default |", "|---|---|---|"]
        for p in [*arguments, *options]:
            shown = _argument(p) if p in arguments else ", ".join([*p.opts, *p.secondary_opts])
            parts.append(f"| `{shown}` | {_cell(getattr(p, 'help', None) or '')} | {_default(p)} |")
        if command.epilog:
            parts += ["", _example(command.epilog)]
    return "\n".join(parts) + "\n"


def study_file() -> str:
    """Every section and key of a study file, with its type, default and meaning."""
    from elsewhere.study import file as study

    sections = [
        ("[study]", study.StudySection),
        ("[[cohort]]", study.CohortSection),
        ("[scenarios]", study.ScenarioSection),
        ("[inputs.NAME]", study.InputSection),
        ("[models.NAME]", study.ModelSection),
        ("[finder]", study.FinderSection),
        ("[tasks.NAME]", study.TaskSection),
        ("[recipes.NAME]", study.RecipeSection),
        ("[analyses]", study.AnalysesSection),
    ]
    parts = [
        MADE,
        "# Study file\n",
        "A study is a TOML file ([how to run one](../how-to/run-a-study.md)). A key that is not on this page is refused, "
        "and the message lists similar ones. `[study]` and one `[[cohort]]` are required, and one `[inputs.NAME]` "
        "and one `[models.NAME]` (networks on pictures, such as breast ultrasound) or one `[tasks.NAME]` and one `[recipes.NAME]` "
        "(methods on volumes, such as breast MRI, or on data of another package), or both: a study may have pictures and volumes. Everything else has a default; for networks it is that of the "
        "published ultrasound study. On the command line, `--set models.cnn.epochs=2` changes a key, `--set cohort.0.source=DIR` "
        "an element of a list.\n",
        f"Studies of the package, by name: {', '.join(f'`{name}`' for name in study.shipped())}.\n",
        "Phantoms take the keys of "
        '`elsewhere phantom ultrasound`, and with `layout = "mama-mia"` those of `elsewhere phantom mri`, with `layout = "bcs-dbt"` those of '
        "`elsewhere phantom tomosynthesis`; options of a cohort are its reader's "
        "([public datasets](../how-to/read-a-public-dataset.md)).\n",
        "## like and profiles\n",
        '`like = "OTHER"` in a model or a recipe copies the keys of the other one, and its settings one by one; keys of the '
        "section itself have precedence. `baseline` and `skip` are not copied.\n",
        "`--profile NAME` changes the study by `[profiles.NAME]`, whose tables have the names of the study's own "
        "(`[profiles.small.recipes.residual-unet.settings]`) and are merged key by key. The order is profile, `--set`, "
        "`like`, so that a change to a recipe also changes recipes that are like it. `skip = true` in a profile leaves a "
        "recipe out. Neither is part of a training's key, which depends only on the resulting settings.",
    ]
    for title, model in sections:
        about = _cell((model.__doc__ or "").partition(": ")[2])
        parts += ["", f"## {title}", "", about[:1].upper() + about[1:], ""]
        parts += ["| key | | type | default |", "|---|---|---|---|"]
        schema = model.model_json_schema()
        for name, field in model.model_fields.items():
            kind = _type_of(schema["properties"][name])
            default = (
                "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
            )
            parts.append(f"| `{name}` | {_cell(field.description or '')} | {kind} | {default} |")
    return "\n".join(parts) + "\n"


def recipes() -> str:
    """Every recipe that ships: tasks, whose method, how it differs, what it sees, settings with defaults."""
    from elsewhere.commands.listing import list_recipes
    from elsewhere.recipes import recipes as registry

    rows = [row for row in list_recipes().rows if str(row["from"]).startswith("elsewhere.")]
    parts = [
        MADE,
        "# Recipes\n",
        "A recipe is a method, mostly a published one, that trains on some cases and predicts others: a mask, a probability or "
        "boxes. A study names it under [`[recipes.NAME]`](study-file.md#recipesname), with `settings`; the networks on pictures "
        "(`picture-classifier`, `lesion-finder`) are set up by `[models.NAME]`, `[inputs.NAME]` and `[finder]`. `elsewhere recipes` "
        "prints this list together with the recipes of other packages "
        "([bring your own](../how-to/bring-your-own-recipe.md)).\n",
        "*Tasks* are those that a recipe is made for. `random` also answers every other task whose answers can be drawn, and `clinical` every "
        "other task that is answered with a probability: where `tasks` of its section names the task, or where the study has no task "
        "that it is made for. *Sees* is what it is given of the cases that it "
        "predicts: the challenge withholds clinical columns there, and no recipe sees their masks or outcomes unless this column names them. "
        "*Saved*: its weights can be saved and [used at another hospital](../how-to/use-a-kept-model.md). "
        "*Version* is part of a training's key, and goes up when the same job would give other numbers. "
        "Settings without a remark are explained by their name; an empty `patch`, `widths` or `blocks` and a `batch` of 0 "
        "are planned from the training set.\n",
        "| recipe | tasks | sees | saved | version | |",
        "|---|---|---|---|---|---|",
    ]
    parts += [
        f"| [`{row['name']}`](#{row['name']}) | {row['tasks']} | {row['sees']} | {row['kept']} | {row['version']} | "
        f"{_cell(row['title'])} |"
        for row in rows
    ]
    parts += [
        "",
        "Two teams of the DBTex challenge, prarit and coolwulf, have published results and no description of a method, so that there is no "
        "recipe of theirs.",
    ]
    settings_of = {row["name"]: registry.get(row["name"]).Settings for row in rows}
    owners = {held: name for name, held in settings_of.items() if dataclasses.fields(held)}
    for row in sorted(rows, key=lambda row: row["name"] != "residual-unet"):
        parts += ["", f"## {row['name']}", "", _cell(row["follows"]), ""]
        settings = settings_of[row["name"]]
        made = _settings(settings)
        base = next((part for part in settings.__mro__[1:] if part in owners), None)
        own = [entry for entry in made if base is None or entry not in _settings(base)]
        if own:
            parts += ["| setting | default | |", "|---|---|---|"]
            parts += [f"| `{name}` | {value} | {_cell(remark)} |" for name, value, remark in own]
        if base is not None:
            other = owners[base]
            parts += ["", f"{'All other' if own else 'All'} settings as of [`{other}`](#{other})."]
        elif not made:
            parts.append("No settings.")
    return "\n".join(parts) + "\n"


def _settings(settings: type) -> list[tuple[str, str, str]]:
    said = _remarks(settings)
    made = settings()
    found = []
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if dataclasses.is_dataclass(value):
            parts = ((part.name, getattr(value, part.name)) for part in dataclasses.fields(value))
            about = _arguments(type(value))
            found += [(f"{field.name}.{name}", _setting(held), about.get(name, "")) for name, held in parts]
        else:
            found.append((field.name, _setting(value), said.get(field.name, "")))
    return found


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"`{value:.4g}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{v}"' if isinstance(v, str) else f"{v}" for v in value) + "]`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower()}`"


def _arguments(made: type) -> dict[str, str]:
    """What the docstring of a class says of its arguments."""
    import inspect
    import re

    text = inspect.cleandoc(made.__doc__ or "").partition("Args:\n")[2]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.M)
    return {name: " ".join(said.split()) for name, said in found}


def _remarks(settings: type) -> dict[str, str]:
    """The text under each field in the source, of the class and those that it is made from."""
    import ast
    import inspect
    import itertools
    import textwrap

    found: dict[str, str] = {}
    for part in reversed(settings.__mro__[:-1]):
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        body = getattr(made, "body", [])
        for field, after in itertools.pairwise(body):
            text = after.value if isinstance(after, ast.Expr) else None
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(text, ast.Constant)
                and isinstance(text.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(text.value)  # type: ignore[union-attr]
    return found


def _type_of(entry: Any) -> str:
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"] if value != "")
    if "anyOf" in entry:
        return _type_of(next(part for part in entry["anyOf"] if part.get("type") != "null"))
    words = {"number": "number", "integer": "whole number", "boolean": "true or false", "string": "text"}
    if entry.get("type") == "array":
        inner = entry.get("items") or (entry.get("prefixItems") or [{}])[0]
        if isinstance(inner, dict) and "enum" in inner:
            return f"list of {_type_of(inner)}"
        return f"list of {words.get(inner.get('type'), 'text')}s".replace("texts", "words")
    return words.get(entry.get("type"), "table")


def _value(value: Any) -> str:
    if value is None or value == "" or value == () or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{v}"' if isinstance(v, str) else f"{v}" for v in value) + "]`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _walk(group: Any, name: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for word in sorted(group.commands):
        command = group.commands[word]
        if hasattr(command, "commands"):
            found += _walk(command, f"{name} {word}")
        else:
            found.append((f"{name} {word}", command))
    return found


def _argument(p: Any) -> str:
    name = (p.metavar or p.name).upper() + ("..." if p.nargs == -1 else "")
    return name if p.required else f"[{name}]"


def _default(p: Any) -> str:
    if p.required:
        return "required"
    if p.default is None or p.default is False or p.default in ("", [], ()) or callable(p.default):
        return ""
    return f"`{p.default}`"


def _example(epilog: str) -> str:
    """`Example: a; then: b` as a block; nothing here is executed, so the language is not named."""
    text = _cell(epilog)
    label, _, rest = text.partition(": ")
    lines = [line[max(line.find("elsewhere "), 0) :].strip() for line in rest.split("; ")]
    return "\n".join([f"{label}:", "", "```", *lines, "```"])


def metrics() -> str:
    """The metrics of every task under protocol `plain`, with what each declares about itself."""
    from elsewhere.protocols import protocols
    from elsewhere.scoring.task import tasks
    from elsewhere.statistics.domain import domain_name

    plain = protocols.get("plain")
    parts = [
        MADE,
        "# Metrics\n",
        "The names are those of `summary.json` and of `scores.parquet`. *Interval* is the method under `plain` "
        "([methods](../explanation/intervals.md)); challenge protocols keep their paper's. *Moves with "
        "prevalence*: gets a verdict only standardised to the source's prevalence "
        "([why](verdicts.md#metrics-that-move-with-prevalence)). *Worst* is what a missing prediction scores "
        "([why](../explanation/missing-is-worst.md)). *Domain* names the row of the "
        "[promised coverage](coverage.md). `*` marks the task's headline.\n",
    ]
    for name, task in tasks:
        parts += [f"## {name}\n"]
        parts.append("| name | | better | range | worst | interval | domain | moves with prevalence |")
        parts.append("|---|---|---|---|---|---|---|---|")
        for spec in task.metrics(plain):
            star = " *" if spec.primary else ""
            high = "∞" if spec.upper_bound == float("inf") else f"{spec.upper_bound:g}"
            unit = f" {spec.unit}" if spec.unit else ""
            parts.append(
                f"| `{spec.name}`{star} | {_cell(spec.label)} | "
                f"{'higher' if spec.higher_is_better else 'lower'} | {spec.lower_bound:g} to {high}{unit} | "
                f"{spec.worst:g} | "
                f"`{spec.interval}` | {domain_name(spec) or 'none'} | "
                f"{'yes' if spec.moves_with_prevalence else ''} |"
            )
        parts.append("")
    parts.append(
        "A metric of your own: [add a metric, reader, protocol or analysis]"
        "(../how-to/add-a-metric-reader-protocol-analysis.md)."
    )
    return "\n".join(parts) + "\n"


def python_api() -> str:
    """The functions and classes of `import elsewhere`, with their signatures."""
    import inspect

    import elsewhere

    parts = [
        MADE,
        "# Python\n",
        "Every command is a typed function of the same name: paths, data frames or arrays in, a frozen result out. Nothing is "
        "written unless `out` names a folder. Mistakes in the input raise `elsewhere.UserError` with `what`, `where` and "
        "`fix`. Imports are lazy: `import elsewhere` stays light.\n",
    ]
    for name in sorted(elsewhere.__all__):
        thing = getattr(elsewhere, name)
        if not callable(thing):
            continue
        parts += [f"## {name}\n", "```", _signature(name, thing), "```\n"]
        parts.append(f"{_cell((inspect.getdoc(thing) or '').split(chr(10) + chr(10))[0])}\n")
        if inspect.isclass(thing) and name != "UserError":
            methods = [
                (method, function)
                for method, function in vars(thing).items()
                if not method.startswith("_")
                and (inspect.isfunction(function) or isinstance(function, classmethod | property))
            ]
            parts += [
                f"- `{method}`: {_cell((inspect.getdoc(function) or '').split(chr(10))[0])}"
                for method, function in methods
                if inspect.getdoc(function)
            ]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _signature(name: str, thing: Any) -> str:
    """One parameter per line; types as they stand in the source."""
    import inspect

    lines, starred = [], False
    for p in inspect.signature(thing).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        kind = "" if p.annotation is p.empty else f": {p.annotation}"
        shown = f"{type(p.default).__name__}()" if dataclasses.is_dataclass(p.default) else repr(p.default)
        default = "" if p.default is p.empty or "factory" in shown else f" = {shown}"
        mark = "**" if p.kind is p.VAR_KEYWORD else ""
        lines.append(f"    {mark}{p.name}{kind}{default},")
    return "\n".join([f"{name}(", *lines, ")"])


def protocol_rules() -> str:
    """Every rule of `plain`, and for the others the rules in which they differ."""
    from elsewhere.protocols import protocols

    parts = [
        MADE,
        "# Rules of every protocol, value by value\n",
        "`plain` in full; the others by what differs from it for their tasks. What the rules mean, and where "
        "papers and code differ: [protocols](protocols.md). The digest goes with every number.\n",
    ]
    plain = protocols.get("plain")
    base = _flat(plain)
    for name, protocol in [("plain", plain), *[pair for pair in protocols if pair[0] != "plain"]]:
        parts += [
            f"## {name}\n",
            f"{_cell(protocol.title)}. Version {protocol.version}; tasks: {', '.join(protocol.tasks)}; "
            f"source: {protocol.source}; digest `{protocol.digest()}`."
            + (f" A report leads with `{protocol.headline[0]}`." if protocol.headline else "")
            + (
                f" Default for cohorts of the reader `{'`, `'.join(protocol.default_for)}`."
                if protocol.default_for
                else ""
            )
            + "\n",
        ]
        parts += [f"- {_cell(note)}" for note in protocol.notes]
        rules = _flat(protocol)
        sections = {"interval", "fairness", *protocol.tasks}
        shown = {
            key: value
            for key, value in rules.items()
            if (name == "plain" or value != base[key]) and key.split(".")[0] in sections
        }
        parts += ["", "| rule | value |", "|---|---|"]
        parts += [f"| `{key}` | `{value}` |" for key, value in shown.items()] or ["| none differs | |"]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def rooms() -> str:
    """Every room of the source, what it is for, and which rooms it may import, as `tests/test_house.py` enforces it."""
    import importlib.util

    root = HERE.parent.parent
    spec = importlib.util.spec_from_file_location("house", root / "tests" / "test_house.py")
    if spec is None or spec.loader is None:
        raise ImportError("tests/test_house.py")
    house = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(house)
    block = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[1].splitlines()
    about = [line.split(None, 1) for line in block if line.startswith("  ")]
    order = [name.rstrip("/").removesuffix(".py") for name, _ in about]
    parts = [
        MADE,
        "# Rooms\n",
        "The top-level modules and folders of `src/elsewhere`, in the order in which they may import each other: never "
        "one that stands further down. `tests/test_house.py` enforces this list. How they work together: "
        "[architecture](../explanation/architecture.md).\n",
        "| room | what it holds | may import |",
        "|---|---|---|",
    ]
    for room, (_, purpose) in zip(order, about, strict=True):
        used = house.MAY_USE[room]
        forbidden = [name for name in order[: order.index(room)] if name not in used]
        shown = ", ".join(f"`{name}`" for name in order if name in used) or "no other room"
        if len(used) > 10:
            missing = ", ".join(f"`{name}`" for name in forbidden)
            shown = f"every room above{f' but {missing}' if forbidden else ''}"
        parts.append(f"| `{room}` | {_cell(purpose)} | {shown} |")
    return "\n".join(parts) + "\n"


def rules() -> str:
    """Every rule id with its sentence, the modules that follow it and the tests that guard it."""
    import sys

    sys.path.insert(0, str(HERE.parent))
    try:
        import rules_page
    finally:
        sys.path.pop(0)
    return f"{MADE}\n{rules_page.page()}"


def _flat(protocol: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in dataclasses.fields(protocol):
        rules = getattr(protocol, part.name)
        if dataclasses.is_dataclass(rules):
            for rule in dataclasses.fields(rules):
                found[f"{part.name}.{rule.name}"] = str(getattr(rules, rule.name))
    return found


if __name__ == "__main__":
    for file, text in pages().items():
        (HERE / file).write_text(text, encoding="utf-8")
        print(f"wrote docs/reference/{file}")
