"""Writes pages of docs/reference from the declarations in the code.

`python python/manual/reference.py` writes them; `python/tests/test_manual.py` fails
when one is stale. Pages that need the compiled declarations are written by `cargo xtask reference`.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTE = "<!-- Written by `python python/manual/reference.py` from {}. -->"

# The meaning of the variables whose declaration has no constant with a comment.
MEANINGS = {
    "compatibility": "Whose results queries have where OpenMLDB differs: see "
    "[compatibility](../compatibility.md).",
    "deploy_stats": "Changes nothing: times of requests are not collected.",
    "enable_trace": "Changes nothing: errors say all that is known of them.",
    "execute_mode": "Which data SELECT reads and LOAD DATA writes: the tables (`online`) or the "
    "offline data (`offline`).",
    "spark_config": "Changes nothing: batch mode runs in the process of the database.",
    "sync_job": "Changes nothing: a statement returns when its job is over.",
    "time_zone": "The time zone in which functions read and write dates and times.",
}


def pages() -> dict[str, str]:
    """Returns the text of each page by its path."""
    return {
        "docs/reference/settings.md": settings(),
        "docs/reference/errors.md": errors(),
        "docs/reference/tables.md": tables(),
        "docs/reference/commands.md": commands(),
        "docs/reference/python.md": python(),
    }


def errors() -> str:
    """Returns the page about the codes of errors."""
    path = "crates/diagnostic/src/lib.rs"
    source = (ROOT / path).read_text()
    module = source[source.index("pub mod code {") :]
    module = module[: module.index("\n}\n")]
    found = re.findall(r'((?:    /// .*\n)+)    pub const (\w+): &str =\s*"(\w{5})";', module)
    assert len(found) == module.count("pub const"), "a code was not read"
    rows = sorted((code, name, _comment(comment)) for comment, name, code in found)
    lines = [
        "# Error codes\n",
        NOTE.format(path),
        "\nEvery error and warning has one of these codes of five characters.",
        "They are those of SQL and PostgreSQL where these have one; "
        "codes with an `L` are Lockstep's.",
        "The codes `01L…` of warnings about queries are [lints](lints.md).\n",
        "| code | name | meaning |",
        "|---|---|---|",
        *(f"| `{code}` | {name.lower()} | {text} |" for code, name, text in rows),
    ]
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Returns the page about the variables of sessions and of the engine."""
    path = "crates/engine/src/variables.rs"
    source = (ROOT / path).read_text()
    comments = re.findall(r'((?:/// .*\n)+)const (\w+): &str = "(\w+)";', source)
    names = {constant: name for _, constant, name in comments}
    meanings = MEANINGS | {name: _comment(text) for text, _, name in comments}
    table = source[source.index("const VARIABLES") :]
    table = table[: table.index("\n];")]
    fields = (
        r"name: (.*?),\s+default: (.*?),\s+scope: VariableScope::(\w+),\s+data_type: (.*?),\n    }"
    )
    rows = re.findall(fields, table, re.DOTALL)
    assert len(rows) == table.count("Variable {"), "a variable was not read"
    lines = [
        "# Settings\n",
        NOTE.format(path),
        "\n`SET name = value` changes a setting of the session, `SET GLOBAL name = value` what new "
        "sessions start with, or a setting of the engine.",
        "`SHOW VARIABLES` and `SHOW GLOBAL VARIABLES` list them.",
        "The settings of the server process are written by `lockstep serve --print-config`: "
        "see [server](../server.md).\n",
        "| setting | scope | values | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, default, scope, kind in rows:
        name = names.get(name, name.strip('"'))
        default = names.get(default, default.strip('"'))
        # Most defaults are literals; a constant stands for its text.
        constant = re.search(rf'const {re.escape(default)}: &str = "(.*?)";', source)
        default = constant[1] if constant else default
        text = meanings[name]
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `{name}` | {scope.lower()} | {_values(kind, source)} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def _values(kind: str, source: str) -> str:
    words = kind
    if kind == "SWITCH":
        return "`true`, `false`"
    if constant := re.search(r"OneOf\((\w+)\)", kind):
        words = re.search(rf"const {constant[1]}:.*? = &\[(.*?)\];", source, re.DOTALL)[1]
    if "OneOf" in kind:
        return ", ".join(f"`{word}`" for word in re.findall(r'"(\w+)"', words))
    if number := re.search(r"Number \{ least: (\S+), most: (\S+) \}", kind):
        most = "" if "MAX" in number[2] else f" to {number[2]}"
        return f"a whole number from {number[1]}{most}"
    name = kind.removeprefix("VariableType::")
    comment = re.search(rf"((?:    /// .*\n)+)    {name},", source)
    return _comment(comment[1]).rstrip(".").lower() if comment else name


def tables() -> str:
    """Returns the page about the system tables."""
    folder = ROOT / "crates/engine/src/system"
    lines = [
        "# System tables\n",
        NOTE.format("crates/engine/src/system"),
        "\nThe tables of the database `lockstep`, which SELECT reads in batch mode.",
        "Their rows are computed when a query names them; no statement changes them.",
    ]
    found = []
    for path in sorted(folder.glob("*.rs")):
        for part in path.read_text().split("SystemTable = SystemTable {")[1:]:
            part = part[: part.index("rows:")]
            name = re.search(r'name: "(\w+)"', part)[1]
            found.append((name, re.findall(r'"(\w+)",\s+DataType::(\w+)', part)))
    declared = (ROOT / "crates/engine/src/system.rs").read_text()
    declared = declared[declared.index("const TABLES") :].split("];")[0]
    assert len(found) == declared.count("::"), "a system table was not read"
    for name, columns in sorted(found):
        lines += [f"\n## lockstep.{name}\n", "| column | type |", "|---|---|"]
        lines += [f"| `{column}` | {kind.upper()} |" for column, kind in columns]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Returns the page about the command line: what `--help` prints."""
    lines = ["# Command line\n", NOTE.format("what `--help` prints")]
    names = ["", "serve", "check", "doctor", "user"]
    names += [f"user {name}" for name in ("add", "list", "remove", "password", "token")]
    for name in names:
        arguments = [sys.executable, "-m", "lockstep", *name.split(), "--help"]
        shown = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
        lines.append(f"\n## lockstep {name}".rstrip() + "\n")
        lines.append("```text\n" + shown.rstrip() + "\n```")
    return "\n".join(lines) + "\n"


def python() -> str:
    """Returns the page about the Python package, from its docstrings."""
    import lockstep

    lines = ["# Python API\n", NOTE.format("the docstrings of `python/lockstep`")]
    for name in sorted(lockstep.__all__):
        if name.startswith("__"):
            continue
        item = getattr(lockstep, name)
        lines += [f"\n## {name}\n", *_described(name, item)]
        if not inspect.isclass(item):
            continue
        fields = fields_of(item)
        if fields:
            lines += ["", "| field | type | meaning |", "|---|---|---|"]
        for field, kind, text in fields:
            lines.append(f"| `{field}` | `{_cell(kind)}` | {_cell(text)} |")
        members = vars(item).items()
        # The members of a native class have another order in each process.
        is_native = any(inspect.isgetsetdescriptor(value) for _, value in members)
        for method, value in sorted(members, key=lambda member: is_native and member[0]):
            if method.startswith("_") or not _is_member(value):
                continue
            lines += [f"\n### {name}.{method}\n", *_described(method, value)]
    return "\n".join(lines) + "\n"


def fields_of(item: type) -> list[tuple[str, str, str]]:
    """Returns the name, the type and the description of each field that a class declares."""
    try:
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(item))).body
    except (OSError, TypeError):
        return []
    fields = []
    for field, text in itertools.pairwise(declared.body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            described = " ".join(text.value.value.split())
            fields.append((field.target.id, ast.unparse(field.annotation), described))
    return fields


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _described(name: str, item: object) -> list[str]:
    signature = ""
    if inspect.isfunction(item):
        signature = f"```text\n{name}{_signature(item)}\n```\n"
    lines, is_example = [], False
    for line in (inspect.getdoc(item) or "").splitlines():
        if line.startswith(">>>") and not is_example:
            lines.append("```pycon")
            is_example = True
        elif not line and is_example:
            lines.append("```")
            is_example = False
        lines.append(line)
    if is_example:
        lines.append("```")
    return [signature, *lines] if signature else lines


class _Annotation(str):
    """A type that is shown as it is written."""

    __repr__ = str.__str__


def _signature(function: Callable[..., object]) -> str:
    """Returns the parameters and the result of a function, as a caller sees them."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_Annotation(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    result = _Annotation(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=result))


def _is_member(value: object) -> bool:
    # Those of native classes are descriptors.
    kinds = (inspect.isfunction, inspect.isgetsetdescriptor)
    return isinstance(value, property) or any(kind(value) for kind in kinds)


def _comment(text: str) -> str:
    joined = " ".join(line.strip().removeprefix("///").strip() for line in text.splitlines())
    return re.sub(r"\[(`[^`]*`)\]", r"\1", joined).replace("|", "\\|")


def main() -> None:
    """Writes every page."""
    out = io.StringIO()
    for path, text in pages().items():
        (ROOT / path).write_text(text)
        out.write(f"wrote {path}\n")
    sys.stdout.write(out.getvalue())


if __name__ == "__main__":
    main()
