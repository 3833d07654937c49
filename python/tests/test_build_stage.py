"""Tests of the program that runs the stages of `make demo`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "build" / "stage.py"


def load():
    spec = importlib.util.spec_from_file_location("stage", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stage(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, "wheel", "a minute", "--", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_stage_names_itself_and_passes_on_what_is_not_progress():
    done = stage(
        "import sys; print('result');"
        "print('   Compiling a v1.0.0\\n warning: unused', file=sys.stderr)"
    )
    assert done.returncode == 0
    assert done.stdout == "result\n"
    lines = done.stderr.splitlines()
    assert lines[:2] == ["[wheel] a minute", " warning: unused"]
    assert lines[2].startswith("[wheel] done after ")


def test_the_exit_code_is_the_command_s():
    failed = stage("import sys; print('error: no', file=sys.stderr); sys.exit(3)")
    assert failed.returncode == 3
    assert "error: no" in failed.stderr
    assert "failed with exit code 3" in failed.stderr


def test_the_time_left_follows_from_the_crates_that_were_compiled_now():
    module = load()
    progress = module.Progress(0.0)
    assert progress.line(1.0) is None
    progress.read("   Building [=>     ] 0/400: a")
    assert progress.line(5.0) == "0 of 400 crates after 5 s"
    progress.read("   Building [=>     ] 100/400: a\r   Building [=>     ] 200/400: b, c")
    share = module.share_of_time(0.5)
    left = module.duration(120 * (1 - share) / share)
    assert progress.line(120.0) == f"200 of 400 crates after 2 min, about {left} left"


def test_crates_that_were_compiled_before_do_not_count_as_progress():
    module = load()
    progress = module.Progress(0.0)
    progress.read("Building [=>     ] 360/400: a")
    assert progress.line(10.0) == "360 of 400 crates after 10 s"
    progress.read("Building [=>     ] 400/400: a")
    assert progress.line(30.0) == "400 of 400 crates after 30 s, about 0 s left"


def test_shares_of_time_rise_from_none_to_all():
    module = load()
    shares = [module.share_of_time(crates / 100) for crates in range(101)]
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
