#!/usr/bin/env python3
"""Counts the lines of Rust code, without blanks and comments, by crate.

    docs/measure/lines.py [CRATE ...]

Three columns: the product; tests (`#[cfg(test)]` modules, files and folders named tests, and the
crates test-support and diskq-sim, which only tests link); benches and examples. Only files that git
knows are counted.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{")
# Strings and characters come first, so that `//` in a string is no comment.
TOKEN = re.compile(
    r"""(?P<text>b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])')|//[^\n]*|/\*.*?\*/""",
    re.DOTALL)


def code_lines(source):
    """Returns the number of lines that are neither blank nor only a comment."""
    code = TOKEN.sub(lambda match: match.group(0) if match["text"] else "", source)
    return sum(1 for line in code.splitlines() if line.strip())


def split_tests(source):
    """Returns the source without its test modules, and the test modules."""
    product, tests, at = [], [], 0
    for start in TEST_MODULE.finditer(source):
        if start.start() < at:
            continue
        # rustfmt closes a module at the column where it began.
        indent = re.search(r"[ \t]*$", source[:start.start()]).group(0)
        end = source.find(f"\n{indent}}}", start.end())
        end = len(source) if end < 0 else end + len(indent) + 2
        product.append(source[at:start.start()])
        tests.append(source[start.start():end])
        at = end
    product.append(source[at:])
    return "".join(product), "".join(tests)


def kind_of(path):
    """Returns `tests`, `benches` or `product` for a file."""
    parts = path.parts
    if "benches" in parts or "examples" in parts:
        return "benches"
    if {"tests", "fuzz", "test-support", "sim"} & set(parts) or re.search(r"(^|_)tests?\.rs$", path.name):
        return "tests"
    return "product"


def main():
    files = subprocess.run(["git", "ls-files", "*.rs"], capture_output=True, text=True, check=True).stdout.split()
    crates = {str(Path(manifest).parent) for manifest in subprocess.run(
        ["git", "ls-files", "*Cargo.toml"], capture_output=True, text=True, check=True).stdout.split()}
    counts = {}
    for name in files:
        path = Path(name)
        crate = next(str(parent) for parent in path.parents if str(parent) in crates)
        if sys.argv[1:] and crate not in sys.argv[1:]:
            continue
        count = counts.setdefault(crate, Counter())
        source = path.read_text()
        if kind_of(path) == "product":
            source, tests = split_tests(source)
            count["tests"] += code_lines(tests)
        count[kind_of(path)] += code_lines(source)
    columns = ("product", "tests", "benches")
    print("| crate | product | tests | benches and examples |\n|---|---|---|---|")
    for crate, count in sorted(counts.items()):
        print(f"| {crate} | {' | '.join(f'{count[column]:,}' for column in columns)} |")
    total = sum(counts.values(), Counter())
    print(f"| all | {' | '.join(f'{total[column]:,}' for column in columns)} |")


if __name__ == "__main__":
    main()
