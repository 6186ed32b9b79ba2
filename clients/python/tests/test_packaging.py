"""The wheel and the sdist. The build tool comes from PyPI."""

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import zipfile
from email.parser import Parser
from pathlib import Path

import stockade

FOLDER = Path(__file__).parents[1]
#: What the sources are, and what a run of the tests leaves beside them.
UNWANTED = shutil.ignore_patterns("__pycache__", ".mypy_cache")


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Packaging(unittest.TestCase):
    shared: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.shared = Path(folder.name)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tree = self.folder / "tree"
        shutil.copytree(FOLDER, self.tree, ignore=UNWANTED)

    def backend(self) -> Path:
        """The build tool that the project names. The first test that needs it gets it for all."""
        backend = self.shared / "backend"
        if backend.exists():
            return backend
        if importlib.util.find_spec("pip") is None:
            self.skip("pip is not installed")
        project = tomllib.loads((FOLDER / "pyproject.toml").read_text())
        requires = project["build-system"]["requires"]
        got = run("-m", "pip", "install", "--quiet", "--target", backend, *requires)
        if got.returncode:
            self.skip("no PyPI to get the build tool from")
        return backend

    def skip(self, why: str) -> None:
        print(f"\nSKIPPED: the packages of the client for Python: {why}")
        self.skipTest(why)

    def build(self, backend: Path, kind: str, tree: Path) -> Path:
        """Builds as pip does: it calls the build tool in the folder of the project."""
        script = (
            "import os, sys; sys.path.insert(0, sys.argv[1]); os.chdir(sys.argv[2]); "
            "import flit_core.buildapi as tool; print(getattr(tool, 'build_' + sys.argv[4])(sys.argv[3]))"
        )
        built = run("-c", script, backend, tree, self.folder, kind)
        self.assertEqual(built.returncode, 0, built.stderr)
        return self.folder / built.stdout.split()[-1]

    def test_a_wheel_and_an_sdist_are_whole_and_leave_nothing_behind(self) -> None:
        before, backend = files(self.tree), self.backend()
        wheel, sdist = (self.build(backend, kind, self.tree) for kind in ("wheel", "sdist"))
        self.assertEqual(files(self.tree), before, "the tree is as it was")
        self.wheel_is_whole(wheel)
        first = wheel.read_bytes()
        with tarfile.open(sdist) as archive:
            archive.extractall(self.folder / "sdist", filter="data")
        (unpacked,) = (self.folder / "sdist").iterdir()
        from_sdist = self.build(backend, "wheel", unpacked)
        self.assertEqual(contents(first, self.folder), contents(from_sdist.read_bytes(), self.folder))

    def wheel_is_whole(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            info = f"stockade_client-{stockade.__version__}.dist-info"
            metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        sources = {f"stockade/{path.name}" for path in (FOLDER / "stockade").glob("*.py")}
        sources.add("stockade/py.typed")
        self.assertEqual({name for name in names if not name.startswith(info)}, sources)
        self.assertIn(f"{info}/licenses/LICENSE", names)
        self.assertEqual(metadata["License-Expression"], "Apache-2.0")
        self.assertEqual(metadata["Version"], stockade.__version__)
        self.assertIsNone(metadata["Requires-Dist"])

    def test_pip_builds_it_and_leaves_nothing_behind(self) -> None:
        before, backend = files(self.tree), self.backend()
        self.assertTrue(backend.exists())  # Otherwise there is no PyPI for pip either.
        built = run("-m", "pip", "wheel", "--quiet", "--no-deps", "-w", self.folder, self.tree)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertEqual(files(self.tree), before, "the tree is as it was")
        (wheel,) = self.folder.glob("*.whl")
        self.wheel_is_whole(wheel)

    def test_the_licence_is_that_of_the_project(self) -> None:
        licence = (FOLDER.parents[1] / "LICENSE").read_bytes()
        self.assertEqual((FOLDER / "LICENSE").read_bytes(), licence)


def contents(wheel: bytes, folder: Path) -> dict[str, bytes]:
    path = folder / "compared.zip"
    path.write_bytes(wheel)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


if __name__ == "__main__":
    unittest.main()
