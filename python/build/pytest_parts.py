"""Runs the Python tests in parts of whole files, two at a time.

Tests of the machine's limits run before the others, alone: the address space that the threads of
a process take depends on what else runs. The table of clients is made of what its process has
seen, so the tests of clients are one part with it. The output of a part is printed when it has
ended, with the times of its slowest tests. Arguments are passed to pytest.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
PROCESSES = 2
ALONE = ["test_machine_memory.py"]
# The file that takes longest is a part of its own, which begins first.
LONGEST = "test_examples.py"
# Into how many parts the other files are divided: enough that none of them ends much later.
OTHER_PARTS = 7
# Of how many tests each part prints the times.
SLOWEST = 7


def is_of_clients(path: Path) -> bool:
    """Whether the table of clients is made of the tests in a file, or tested by them."""
    return path.name == "test_client_matrix.py" or "mark.client(" in path.read_text()


def parts(paths: list[Path]) -> list[list[Path]]:
    """The longest file, the tests of clients, and the others in equal parts."""
    paths = [path for path in paths if path.name not in ALONE]
    clients = [path for path in paths if is_of_clients(path)]
    longest = [path for path in paths if path.name == LONGEST]
    others = [path for path in paths if path not in [*clients, *longest]]
    others = [others[part::OTHER_PARTS] for part in range(OTHER_PARTS)]
    return [part for part in [longest, clients, *others] if part]


def run(part: list[Path], arguments: list[str]) -> tuple[int, bytes]:
    """Runs the tests of some files, and returns the exit code and the output."""
    command = [sys.executable, "-m", "pytest", f"--durations={SLOWEST}", *arguments, *part]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def main(arguments: list[str]) -> int:
    """Runs all parts, and returns the exit code of one that failed."""
    paths = sorted(TESTS.glob("test_*.py"))
    alone = [path for path in paths if path.name in ALONE]
    status, output = run(alone, arguments) if alone else (0, b"")
    sys.stdout.buffer.write(output)
    with ThreadPoolExecutor(PROCESSES) as threads:
        running = [threads.submit(run, part, arguments) for part in parts(paths)]
        for part in as_completed(running):
            code, output = part.result()
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
            status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
