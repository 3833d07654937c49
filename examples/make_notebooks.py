"""Creates the notebook of each example from its script, and runs it.

`python examples/make_notebooks.py` writes the notebooks, including the outputs of the run.
`python/tests/test_examples.py` fails if the cells of a notebook differ from its script.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.notebooknode import NotebookNode

HERE = Path(__file__).parent
NAMES = ("card_fraud", "recommendation", "trip_duration")
CELL = re.compile(r"^# %%(?P<markdown> \[markdown\])?\n", re.MULTILINE)
TIMEOUT_S = 600


def cells_of(script: str) -> list[tuple[str, str]]:
    """Splits a script in percent format into cells: pairs of `markdown` or `code` and the text."""
    heads = list(CELL.finditer(script))
    assert heads and heads[0].start() == 0, "a script starts with a cell"
    ends = [*(head.start() for head in heads[1:]), len(script)]
    cells = []
    for head, end in zip(heads, ends, strict=True):
        text = script[head.end() : end].strip("\n")
        if head["markdown"]:
            cells.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        else:
            cells.append(("code", text))
    return cells


def notebook_of(name: str) -> NotebookNode:
    """Returns the notebook of an example, without outputs."""
    script = (HERE / name / f"{name}.py").read_text()
    new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    cells = [new[kind](text) for kind, text in cells_of(script)]
    for number, cell in enumerate(cells):
        # The same in each run, so that version control shows only real changes.
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def run(name: str) -> NotebookNode:
    """Runs the notebook of an example in its directory and returns it with its outputs."""
    notebook = notebook_of(name)
    resources = {"metadata": {"path": str(HERE / name)}}
    NotebookClient(notebook, timeout=TIMEOUT_S, resources=resources).execute()
    for cell in notebook.cells:
        # Execution times, which differ in each run.
        cell.metadata.pop("execution", None)
    return notebook


def main(names: list[str]) -> None:
    """Writes the notebooks of the named examples, or of all examples."""
    for name in names or NAMES:
        path = HERE / name / f"{name}.ipynb"
        nbformat.write(run(name), path)
        print(f"wrote {path.relative_to(HERE.parent)}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
