"""Programs of other languages: what they need, where it is installed, how they are run.

Packages are installed once, into a folder below the target directory whose name has a hash of
the files that pin them. A test is skipped where a tool is missing, and the message names it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path.home() / ".cache/lockstep/target"))
INSTALL_SECONDS_MAX = 600
RUN_SECONDS_MAX = 120


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skips a test where one of these tools is not installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def installed(name: str, files: list[str], install: Callable[[Path], None]) -> Path:
    """Returns the folder of a program, which `install` has filled once for these files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update((FOLDER / name / file).read_bytes())
    folder = TARGET / "clients" / f"{name}-{digest.hexdigest()[:16]}"
    done = folder / ".installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in files:
            shutil.copy(FOLDER / name / file, folder / file)
        install(folder)
        done.touch()
    return folder


def call(command: list[str], folder: Path, **environment: str) -> None:
    """Runs a step of an installation; what it prints is shown where it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"


def lines(command: list[str], folder: Path) -> list[str]:
    """Runs a program and returns the lines that it prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
