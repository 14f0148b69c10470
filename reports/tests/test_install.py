"""`pip install ./reports`: the program lockstep-report makes a page from another folder, without this repository."""
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import reports

REPORTS = Path(reports.__file__).resolve().parent


@pytest.fixture(name="installed", scope="module")
def _installed(tmp_path_factory):
    """Folder that pip installed into, from a copy: pip leaves its build in the folder of the source."""
    if missing := [name for name in ("pip", "setuptools", "wheel") if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}: Debian's python3-pip")
    folder = tmp_path_factory.mktemp("pip")
    source = shutil.copytree(REPORTS, folder / "reports", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    call = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-build-isolation",
            "--no-deps", "--target", str(folder / "site"), str(source)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def run(installed, *words, cwd):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run([sys.executable, str(installed / "bin" / "lockstep-report"), *words],
                          capture_output=True, text=True, timeout=120, env=env, cwd=cwd, check=False)


def test_the_installed_program_makes_a_page(installed, simple_file, tmp_path):
    done = run(installed, simple_file, "-o", "page", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ring" in done.stdout
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "All-reduce" in page and "<style" in page


def test_all_files_but_tests_are_installed(installed):
    def files(folder):
        names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".toml")}
        return {name for name in names if not re.match(r"build/|[^/]+\.egg-info/", name)}  # these are pip's own

    assert files(installed / "reports") == {name for name in files(REPORTS) if not name.startswith("tests/")}


def test_version_and_name(installed, tmp_path):
    project = (REPORTS.parent / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(lockstep VERSION (\S+)", project).group(1)
    assert reports.VERSION == version
    assert run(installed, "--version", cwd=tmp_path).stdout == f"lockstep-report (Lockstep) {version}\n"
    assert "usage: lockstep-report" in run(installed, "--help", cwd=tmp_path).stdout
    assert run(installed, "none.jsonl", cwd=tmp_path).stderr.count("\n") == 1
