"""The first hour of a newcomer: a clean environment without a compiler, and what the README and the
tutorial say, as typed.

The notebooks of `examples/` belong to that hour, too. They take more than a minute and need the
packages of a data scientist, which a clean environment has not: test_examples.py runs them, once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

import lockstep
from clients.terminal import shell_terminal

ROOT = Path(__file__).parents[2]

FIRST_ANSWER = """
import time
import lockstep

db = lockstep.connect()
db.append("clicks", [{"user": "ann", "price": 20.0, "ts": 1_000}])
db.execute('''DEPLOY price AS SELECT user, sum(price) OVER w AS spent FROM clicks
              WINDOW w AS (PARTITION BY user ORDER BY ts
                           ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)''')
print(db.request("price", {"user": "ann", "price": 30.0, "ts": 90_000}))
print(db.verify("price").ok)
"""


def wheel() -> Path:
    """Returns the wheel that is installed here."""
    target = os.environ.get("CARGO_TARGET_DIR", str(Path.home() / ".cache/lockstep/target"))
    found = sorted(Path(target, "wheels").glob("lockstep*.whl"))
    if not found:
        pytest.skip("there is no wheel in the target directory: `make wheel` builds one")
    return found[-1]


class CleanEnvironment:
    """A Python of its own with nothing but the wheel, and no compiler on its path."""

    def __init__(self, folder: Path):
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        tools = folder / "tools"
        tools.mkdir()
        for tool in ("sh", "cat", "env"):
            (tools / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        self.path = f"{folder / 'venv/bin'}:{tools}"
        began = time.monotonic()
        self.run("pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel()))
        self.install_s = time.monotonic() - began

    def run(self, *command: str, text: str | None = None) -> str:
        """Runs a command of the environment, and returns its output."""
        env = {"PATH": self.path, "HOME": str(self.folder), "LANG": "C.UTF-8"}
        done = subprocess.run(
            [str(self.folder / "venv/bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=env,
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return CleanEnvironment(tmp_path_factory.mktemp("newcomer"))


def test_the_wheel_needs_no_compiler_and_no_other_package(clean, capsys):
    assert shutil.which("cc", path=clean.path) is None
    assert shutil.which("cargo", path=clean.path) is None
    listed = clean.run("python", "-m", "pip", "list", "--format=freeze")
    packages = {line.split("==")[0] for line in listed.split()}
    assert packages <= {"lockstep-db", "pip", "setuptools", "wheel"}
    assert "lockstep-db" in packages
    began = time.monotonic()
    answer = clean.run("python", "-c", FIRST_ANSWER)
    answer_s = time.monotonic() - began
    assert answer == "{'user': 'ann', 'spent': 50.0}\nTrue\n"
    with capsys.disabled():
        print(
            f"\n   {clean.install_s:.1f} s to install the wheel, "
            f"{answer_s:.2f} s from there to the first answer of a request, with its verification"
        )


def test_the_readme_runs_as_it_is_typed(clean):
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    shown = clean.run("python", "-c", "\n".join(blocks))
    assert "{'user': 'ann', 'clicks': 3, 'price_avg': 20.833333333333332}" in shown
    assert shown.splitlines()[-1] == "True"


def test_the_tutorial_runs_as_it_is_typed(clean, capsys):
    page = (ROOT / "docs/tutorial.md").read_text()
    session = "\n".join(re.findall(r"```pycon\n(.*?)```", page, re.DOTALL))
    typed = clean.folder / "tutorial.txt"
    typed.write_text(session)
    began = time.monotonic()
    # It prints nothing where every answer is that of the page, and each example otherwise.
    shown = clean.run("python", "-m", "doctest", "-v", typed.name)
    tutorial_s = time.monotonic() - began
    lines = session.count("\n>>> ") + session.startswith(">>> ")
    assert lines > 15
    assert f"{lines} passed" in shown, shown[-2000:]
    with capsys.disabled():
        print(f"\n   {tutorial_s:.1f} s to run the {lines} lines of the tutorial")


def test_the_examples_are_those_that_run_elsewhere():
    import test_examples

    notebooks = {path.stem for path in (ROOT / "examples").glob("*/*.ipynb")}
    assert notebooks == set(test_examples.NAMES)
    # What the newcomer reads about them.
    guide = (ROOT / "docs/guide/examples.md").read_text()
    for name in notebooks:
        assert f"{name}.ipynb" in guide


def test_the_shell_of_the_readme_runs(clean):
    assert clean.run("lockstep", "--version").strip() == f"lockstep {lockstep.__version__}"
    assert "2" in clean.run("lockstep", "-c", "SELECT 1 + 1 AS two")
    (clean.folder / "features.sql").write_text("CREATE TABLE t (a INT);\nSHOW TABLES;\n")
    assert "t" in clean.run("lockstep", "features.sql")
    clean.run("lockstep", "-c", "CREATE TABLE kept (a INT)", "features.lockstep")
    listed = clean.run("lockstep", "--read-only", "-c", "SHOW TABLES", "features.lockstep")
    assert "kept" in listed


def test_a_session_at_the_prompt(clean, tmp_path):
    path = f"{clean.path}:{os.environ['PATH']}"
    with shell_terminal(tmp_path, columns=300, PATH=path) as shell:
        shell.run(
            "CREATE TABLE clicks (user STRING, price DOUBLE, ts TIMESTAMP);", "CREATE TABLE\n"
        )
        shell.run("INSERT INTO clicks VALUES ('ann', 20.0, 1000), ('bob', 3.5, 2000);", "(2 rows)")
        # A mistake shows where, and what to write.
        mistake = shell.run("SELECT prise FROM clicks;", "Did you mean `price`?")
        assert "^^^^^" in mistake
        shell.run("SELECT user, price FROM clicks;", "(2 rows)")
        window = "WINDOW w AS (PARTITION BY user ORDER BY ts)"
        shell.run(
            f"DEPLOY d AS SELECT user, sum(price) OVER w AS s FROM clicks {window};", "DEPLOY"
        )
        shell.run("SHOW DEPLOYMENTS;", "(1 row)")
        shell.type("exit\r")
        assert shell.exit_code() == 0


def test_the_newcomer_has_no_python_of_the_tests(clean):
    assert clean.run("python", "-c", "import sys; print(sys.prefix)").strip() != sys.prefix
