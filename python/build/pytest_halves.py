"""Runs the Python tests in two processes at the same time, each of which has whole files.

The table of clients is made of what its process has seen, so the tests of clients are in one half
with it. The second half's output follows that of the first; both list their slowest tests.
Arguments are passed to pytest.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
# Of how many tests each half prints the times.
SLOWEST = 25


def is_of_clients(path: Path) -> bool:
    """Whether the table of clients is made of the tests in a file, or tested by them."""
    return path.name == "test_client_matrix.py" or "mark.client(" in path.read_text()


def halves(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """The tests of clients, and the others."""
    clients = [path for path in paths if is_of_clients(path)]
    return clients, [path for path in paths if path not in clients]


def main(arguments: list[str]) -> int:
    """Runs both halves, and returns the exit code of one that failed."""
    command = [sys.executable, "-m", "pytest", f"--durations={SLOWEST}", *arguments]
    first, second = halves(sorted(TESTS.glob("test_*.py")))
    with tempfile.TemporaryFile() as output:
        others = subprocess.Popen([*command, *second], stdout=output, stderr=subprocess.STDOUT)
        status = subprocess.run([*command, *first], check=False).returncode
        others_status = others.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
    return status or others_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
