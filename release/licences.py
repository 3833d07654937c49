"""Writes the licences of all crates that are linked into a release.

Asks cargo which crates are in the wheel and the binary (not what only builds or tests them), and
writes each with its version, its licence expression and the texts that it ships. Texts that are
the same but for spaces are written once. A crate without a licence expression is an error; one
without a text of its own gets the text that other crates ship for a licence it may be used under.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["lockstep-python", "lockstep-cli"]
TEXT_NAMES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)

# What begins the text of each licence that a crate may leave out.
KNOWN_TEXTS = {
    "Apache-2.0": "Apache License Version 2.0",
    "MIT": "Permission is hereby granted, free of charge",
    "BSD-2-Clause": "Redistribution and use in source and binary forms",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "Zlib": "provided 'as-is', without any express or implied warranty",
    "CC0-1.0": "CC0 1.0 Universal",
    "Unicode-3.0": "UNICODE LICENSE V3",
}


def cargo(*arguments: str) -> str:
    """Returns what a cargo command prints."""
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked_crates(target: str) -> set[tuple[str, str]]:
    """Returns the names and versions of the crates that are linked, ours left out."""
    crates = set()
    for package in PACKAGES:
        edges = ["--edges", "normal,no-proc-macro", "--target", target]
        tree = cargo("tree", "--package", package, *edges, "--prefix", "none", "--format", "{p}")
        for line in tree.splitlines():
            name, version = line.split()[:2]
            if not name.startswith("lockstep-"):
                crates.add((name, version.removeprefix("v")))
    return crates


def texts_of(folder: Path) -> list[str]:
    """Returns the licence texts and notices that a crate ships."""
    files = sorted(path for path in folder.iterdir() if TEXT_NAMES.match(path.name))
    return [path.read_text(errors="replace").strip() for path in files if path.is_file()]


def normalized(text: str) -> str:
    """Returns a text without what differs between copies of it."""
    return " ".join(text.split())


def substitute(expression: str, texts: dict[str, str]) -> str | None:
    """Returns a text, shipped by another crate, of a licence that the expression allows."""
    for name, beginning in KNOWN_TEXTS.items():
        if re.search(rf"(^|[\s(/]){re.escape(name)}($|[\s)/])", expression):
            for key, text in texts.items():
                if beginning in key and "Copyright (c) " not in key[:200]:
                    return text
            for key, text in texts.items():
                if beginning in key:
                    return text
    return None


def main() -> int:
    """Writes the file; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--target", default="x86_64-unknown-linux-gnu")
    arguments = parser.parse_args()

    metadata = json.loads(cargo("metadata", "--format-version", "1"))
    packages = {(entry["name"], entry["version"]): entry for entry in metadata["packages"]}
    crates = sorted(linked_crates(arguments.target))
    texts: dict[str, str] = {}
    users: dict[str, list[str]] = defaultdict(list)
    without_text, unlicensed = [], []
    for crate in crates:
        package = packages[crate]
        label = f"{crate[0]} {crate[1]}"
        if not package["license"]:
            unlicensed.append(label)
        own = texts_of(Path(package["manifest_path"]).parent)
        if not own:
            without_text.append((label, package["license"] or ""))
        for text in own:
            key = normalized(text)
            texts.setdefault(key, text)
            users[key].append(label)
    if unlicensed:
        print(f"crates without a licence expression: {', '.join(unlicensed)}", file=sys.stderr)
        return 1
    for label, expression in without_text:
        text = substitute(expression, texts)
        if text is None:
            print(f"no licence text found for {label}: {expression}", file=sys.stderr)
            return 1
        users[normalized(text)].append(f"{label} (ships no text; {expression})")

    lines = [
        "Lockstep is licensed under the Apache License, Version 2.0; see LICENSE.",
        f"It contains {len(crates)} other crates, listed with their licences,",
        "and the Rust standard library (MIT OR Apache-2.0). Texts and notices follow the list.",
        "",
    ]
    lines += [f"{name} {version}: {packages[name, version]['license']}" for name, version in crates]
    for key, text in texts.items():
        lines += ["", "-" * 80, f"Used by: {', '.join(users[key])}", "", text]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("\n".join(lines) + "\n")
    print(f"{arguments.output}: {len(crates)} crates, {len(texts)} texts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
