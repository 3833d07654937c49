"""The examples: each script, and each notebook, as a reader runs them."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib import image

from kafka_broker import available

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import make_notebooks  # noqa: E402

NAMES = make_notebooks.NAMES
COMPARED = re.compile(r"^([\d,]+) feature values compared, 0 differ$", re.MULTILINE)
LATENCY = re.compile(r"p50 [\d,]+ µs, p99 [\d,]+ µs, p999 [\d,]+ µs")


def number(pattern: str, text: str) -> float:
    """Returns the number that the pattern finds in a text."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found, f"{pattern} is not in:\n{text}"
    return float(found[1].replace(",", ""))


def check_card_fraud(text: str) -> None:
    offline = number(r"^precision at \d+ payments a day, offline: ([\d.]+)$", text)
    online = number(r"^precision at \d+ payments a day, online: +([\d.]+)", text)
    assert offline == online
    assert number(r"^scores that differ: (\d+)", text) == 0
    for baseline in ("chosen at random", "the highest amounts", "a model of the payment alone"):
        assert online > 2 * number(rf"^  ([\d.]+)  {baseline}$", text)
    # The leak looks better than it is.
    assert number(r"^with the leak, offline: ([\d.]+)", text) > offline
    assert number(r"^with the leak, online: +([\d.]+)", text) < online


def check_recommendation(text: str) -> None:
    model = number(r"^NDCG@5 offline: ([\d.]+)", text)
    assert model == number(r"^NDCG@5 online: +([\d.]+)", text)
    assert number(r"^scores that differ: (\d+)", text) == 0
    assert model > number(r"^ *([\d.]+) +[\d.]+ +popularity", text)


def check_trip_duration(text: str) -> None:
    model = number(r"^mean absolute error offline: ([\d.]+) minutes", text)
    assert model == number(r"^mean absolute error online: +([\d.]+) minutes", text)
    assert number(r"^predictions that differ: (\d+)", text) == 0
    for baseline in ("always the median", "distance, at the median pace"):
        assert model < number(rf"^ +([\d.]+)  {baseline}$", text) / 2
    # So few trips say little about the traffic: not better by a margin, and not worse.
    assert model < 1.02 * number(r"^ +([\d.]+)  model of the trip alone$", text)
    assert number(r"^with the leak, offline: ([\d.]+) minutes", text) < model
    assert model < number(r"^with the leak, online: +([\d.]+) minutes", text)


CHECKS = dict(
    zip(NAMES, (check_card_fraud, check_recommendation, check_trip_duration), strict=True)
)


def check(name: str, text: str) -> None:
    """Checks what an example says."""
    CHECKS[name](text)
    compared = COMPARED.findall(text)
    assert compared and int(compared[-1].replace(",", "")) > 10_000
    assert LATENCY.search(text)
    assert "0 differ>" in text, "db.verify compared the deployment"


def is_drawn(png: bytes) -> bool:
    """Returns whether a picture has more than one colour."""
    pixels = image.imread(io.BytesIO(png), format="png")
    return float(np.std(pixels[..., :3])) > 0.02


@pytest.mark.parametrize("name", NAMES)
def test_a_script_shows_what_it_promises(name):
    pictures = EXAMPLES / name / "pictures"
    for old in pictures.glob("*.png"):
        old.unlink()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name / f"{name}.py")],
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    check(name, done.stdout)
    drawn = sorted(pictures.glob("*.png"))
    assert len(drawn) >= 2
    assert all(is_drawn(path.read_bytes()) for path in drawn)


@pytest.mark.skipif(available() is not None, reason="no Kafka")
def test_the_stream_gives_what_batch_mode_gives():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "streaming" / "streaming.py")],
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    compared = COMPARED.findall(done.stdout)
    assert compared and int(compared[-1].replace(",", "")) > 99_000
    assert 100 < number(r"^([\d,]+) rows were late", done.stdout) < 1_000
    assert LATENCY.search(done.stdout)
    drawn = sorted((EXAMPLES / "streaming" / "pictures").glob("*.png"))
    assert len(drawn) == 2 and all(is_drawn(path.read_bytes()) for path in drawn)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_what_it_promises(name):
    notebook = make_notebooks.run(name)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    shown = [output.data for output in outputs if "data" in output]
    check(name, "\n".join([printed, *(data.get("text/plain", "") for data in shown)]))
    drawn = [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]
    assert len(drawn) >= 2
    assert all(map(is_drawn, drawn))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_script(name):
    stored = nbformat.read(EXAMPLES / name / f"{name}.ipynb", as_version=4)
    made = make_notebooks.notebook_of(name)
    cells = [(cell.cell_type, cell.source) for cell in stored.cells]
    assert cells == [(cell.cell_type, cell.source) for cell in made.cells], (
        "run `python examples/make_notebooks.py`"
    )
    assert any(cell.get("outputs") for cell in stored.cells)
    size = (EXAMPLES / name / f"{name}.ipynb").stat().st_size
    assert size < 300_000
