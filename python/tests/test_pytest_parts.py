"""Tests of the program that runs the Python tests in parts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "build" / "pytest_parts.py"
TESTS = Path(__file__).parent


def load():
    spec = importlib.util.spec_from_file_location("pytest_parts", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_file_is_in_one_part_and_the_clients_are_with_their_table():
    paths = sorted(TESTS.glob("test_*.py"))
    module = load()
    parts = module.parts(paths)
    alone = [path for path in paths if path.name in module.ALONE]
    assert len(alone) == len(module.ALONE)
    assert sorted([*alone, *(path for part in parts for path in part)]) == paths
    assert [path.name for path in parts[0]] == [module.LONGEST]
    names = {path.name for path in parts[1]}
    assert {"test_client_matrix.py", "test_postgres.py", "test_clients_go.py"} <= names
    others = [path for part in parts[2:] for path in part]
    assert not any("mark.client(" in path.read_text() for path in others)
    sizes = [len(part) for part in parts[2:]]
    assert max(sizes) - min(sizes) <= 1


def test_a_failure_in_a_part_is_one_of_the_whole(tmp_path: Path):
    for clients, others in [("True", "False"), ("False", "True")]:
        program = tmp_path / "build" / PROGRAM.name
        tests = tmp_path / "tests"
        for folder in (program.parent, tests):
            folder.mkdir(exist_ok=True)
        program.write_text(PROGRAM.read_text())
        (tests / "test_client_matrix.py").write_text(f"def test_table(): assert {clients}\n")
        (tests / "test_other.py").write_text(f"def test_other(): assert {others}\n")
        done = subprocess.run(
            [sys.executable, program, "-p", "no:cacheprovider"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert done.stdout.count("1 passed") == 1
        assert done.stdout.count("1 failed") == 1
