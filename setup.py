"""Compile the hot modules with mypyc; without a C compiler, or with TRILOGUE_PURE=1, install them as plain Python.

mypyc wants to see the tree under its installed names, so a view of symbolic links that follows `package_dir` is made in build/links first. A compiled
module lies beside its source and wins over it, so each build in place writes down what it was made from, in build/compiled.json, for
conftest.py to compare.
"""

import configparser
import hashlib
import json
import os
import pathlib
import shutil
import sys
import sysconfig

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent.resolve()
LINKS = ROOT / "build" / "links"
RECORD = ROOT / "build" / "compiled.json"

COMPILED = ("core", "routing", "store", "frontends/amqp")
INTERPRETED = {"core/settings.py", "store/settings.py"}


def package_dirs() -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser["options"]["package_dir"].strip().splitlines()
    return {name.strip(): folder.strip() for name, folder in (line.split("=") for line in lines)}


def make_links(packages: dict[str, str]) -> None:
    shutil.rmtree(LINKS, ignore_errors=True)
    for name, folder in sorted(packages.items()):
        package = LINKS.joinpath(*name.split("."))
        package.mkdir(parents=True, exist_ok=True)
        for source in (ROOT / folder).glob("*.py*"):
            if source.is_file():
                (package / source.name).symlink_to(source)


def compiled_sources(packages: dict[str, str]) -> dict[str, pathlib.Path]:
    """Every module to compile: its path in the tree, and in the view."""
    paths = {}
    for name, folder in sorted(packages.items()):
        if folder not in COMPILED:
            continue
        for source in sorted((ROOT / folder).glob("*.py")):
            if source.name != "__init__.py" and f"{folder}/{source.name}" not in INTERPRETED:
                paths[f"{folder}/{source.name}"] = LINKS.joinpath(*name.split("."), source.name)
    return paths


def missing_for_compiling() -> str:
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        return "no C compiler was found"
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's C headers were not found"
    return ""


def extensions() -> list[object]:
    packages = package_dirs()
    make_links(packages)
    if os.environ.get("TRILOGUE_PURE") == "1":
        return []
    if missing := missing_for_compiling():
        print(f"trilogue: {missing}, so this is the plain Python build; it works the same, more slowly", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = str(LINKS)
    os.chdir(ROOT)
    paths = map(str, compiled_sources(packages).values())
    return mypycify(["--explicit-package-bases", "--namespace-packages", "--config-file", "mypy.ini", *paths], opt_level="3", group_name="trilogue")


class RecordedBuild(build_ext):
    def run(self) -> None:
        sources = compiled_sources(package_dirs())
        digests = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in sources}
        super().run()
        if self.inplace and self.extensions:
            RECORD.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


setup(ext_modules=extensions(), cmdclass={"build_ext": RecordedBuild})
