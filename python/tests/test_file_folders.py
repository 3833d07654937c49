"""A served directory and a user of few rights: files are opened in the listed folders only, no file
takes a thread for good, and a full disk is an error that leaves nothing."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lockstep

WAIT_S = 60


class Server:
    """A server of a directory, as user `ann`."""

    def __init__(self, process: subprocess.Popen[str], http: str):
        self.process = process
        self.http = http

    def sql(self, text: str) -> dict:
        """Runs a statement; returns the answer, or its error."""
        login = base64.b64encode(b"ann:x").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        body = json.dumps({"sql": text}).encode()
        request = urllib.request.Request(f"http://{self.http}/v1/sql", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())


@contextmanager
def serve(directory: Path, folder: Path) -> Iterator[Server]:
    with lockstep.connect(directory) as db:
        db.execute("""
            CREATE TABLE t (k STRING); CREATE USER ann OPTIONS(password='x');
            GRANT SELECT, INSERT ON default.t TO ann
        """)
    command = [sys.executable, "-m", "lockstep", "serve", str(directory)]
    command += ["--http", "127.0.0.1:0", "--postgres", "off", "--flight", "off"]
    command += ["--set", f"server.file_folders={folder}", "--set", "server.drain_timeout_ms=1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process, process.stdout.readline().split()[2])
        finally:
            process.terminate()
            assert process.wait(WAIT_S) in (0, 3)


def test_a_user_reads_nothing_beside_the_listed_folder(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    for path in (folder / "parts" / "day=1", out):
        path.mkdir(parents=True)
    (folder / "a.csv").write_text("k\ninside\n")
    (out / "b.csv").write_text("k\nsecret\n")
    (folder / "parts" / "day=1" / "b.csv").symlink_to(out / "b.csv")
    os.mkfifo(folder / "pipe.csv")
    with serve(tmp_path / "features.lockstep", folder) as server:
        load = f"LOAD DATA INFILE '{folder}/a.csv' INTO TABLE t OPTIONS(sql=\"%s\")"
        assert "error" not in server.sql(load % "SELECT k FROM file")
        for statement, code in {
            load % f"SELECT k FROM '{out}/b.csv'": "42501",
            load % "SELECT k FROM read_csv('/etc/passwd', header = false)": "42501",
            load % "SELECT k FROM t": "42P01",
            f"SELECT * FROM read_csv('{folder}/parts')": "42501",
            f"SELECT * FROM read_csv('{folder}/parts/day=1')": "42501",
            f"LOAD DATA INFILE '{folder}/parts' INTO TABLE t OPTIONS(format='csv')": "42501",
            f"SELECT * FROM '{folder}/pipe.csv'": "42809",
            f"LOAD DATA INFILE '{folder}/pipe.csv' INTO TABLE t": "42809",
        }.items():
            answer = server.sql(statement)
            assert answer["error"]["code"] == code, (statement, answer)
        found = server.sql(f"SELECT * FROM read_csv('{folder}/parts')")["error"]["message"]
        link = folder / "parts" / "day=1" / "b.csv"
        assert found == f"file `{link}` is outside the directories that users may access"
        assert server.sql("SELECT k FROM t")["rows"] == [["inside"]]


def test_modes_of_a_directory_are_its_user_s_alone(tmp_path):
    before = os.umask(0o022)
    try:
        directory = tmp_path / "features.lockstep"
        with lockstep.connect(directory) as db:
            db.append("t", [{"a": 1}])
            db.execute("CHECKPOINT")
            db.execute(f"BACKUP TO '{tmp_path / 'backup'}'")
            db.execute(f"SELECT a FROM t INTO OUTFILE '{tmp_path / 'a.csv'}'")
    finally:
        os.umask(before)
    for root in (directory, tmp_path / "backup"):
        for path in (root, *root.rglob("*")):
            expected = 0o700 if path.is_dir() else 0o600
            assert path.stat().st_mode & 0o777 == expected, path
    assert (tmp_path / "a.csv").stat().st_mode & 0o777 == 0o644, "an export keeps the mask"


def test_a_log_that_ends_before_its_last_clean_close_is_damaged(tmp_path):
    directory = tmp_path / "features.lockstep"
    with lockstep.connect(directory) as db:
        db.execute("CREATE USER ann OPTIONS(password='x')")
    segment = min((directory / "log").glob("*.wal"))
    before = len(segment.read_bytes().rstrip(b"\0")) + 7 & ~7
    with lockstep.connect(directory) as db:
        db.execute("DROP USER ann")
    whole = segment.read_bytes()
    check = [sys.executable, "-m", "lockstep", "check", str(directory)]
    assert subprocess.run(check, capture_output=True, timeout=WAIT_S).returncode == 0
    for damaged, text in {
        whole[:before].ljust(len(whole), b"\0"): "the log ends before the position at which",
        whole[:before]: "the log ends before the position at which",
        whole[:-8]: "the file is shorter than its header specifies",
    }.items():
        segment.write_bytes(damaged)
        with pytest.raises(lockstep.Error, match=text) as caught:
            lockstep.connect(directory)
        assert caught.value.code == "XX001"
        done = subprocess.run(check, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 1 and text in done.stdout, done.stdout
    # A version before wrote no mark.
    segment.write_bytes(whole)
    (directory / "log" / "CLOSED").unlink()
    with lockstep.connect(directory) as db:
        assert "ann" not in [row[0] for row in db.execute("SHOW USERS").fetchall()]


def on_small_disk(folder: Path, code: str) -> str:
    """Runs a program with a disk of 2 MiB at a folder; returns what it prints."""
    mount = f'mount -t tmpfs -o size=2m tmpfs {folder} && exec {sys.executable} -c "$0"'
    command = ["unshare", "-rm", "sh", "-c", mount, textwrap.dedent(code)]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    if done.returncode != 0 and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no disk can be mounted: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    code = f"""
        import os, lockstep
        db = lockstep.connect("{tmp_path}/features.lockstep")
        rows = [{{"a": i, "s": os.urandom(40).hex()}} for i in range(60000)]
        db.append("t", rows)
        for path in ("a.csv", "a.parquet", "a.json", "a.arrow", "parts/"):
            try:
                db.execute(f"SELECT * FROM t INTO OUTFILE '{folder}/{{path}}'")
            except lockstep.Error as error:
                print(error.code, *str(error).splitlines())
        try:
            db.execute("BACKUP TO '{folder}/backup'")
        except lockstep.Error as error:
            print(error.code)
        print(os.listdir("{folder}"))
    """
    *exports, backup, left = on_small_disk(folder, code).splitlines()
    assert len(exports) == 5, exports
    for line in exports:
        assert line.startswith("53100 "), line
        assert re.search(r"could not write file `.+`: no space left on device", line), line
    assert (backup, left) == ("53100", "[]")
