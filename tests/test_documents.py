"""What the documents say is true: their examples load, run and pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "scenarios" / "README.md"
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every example of the guide and the contract that they name."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "guide.yaml").write_text("---\n".join(EXAMPLES), encoding="utf-8")
    contract = ROOT / "scenarios" / "contract.yaml"
    (folder / "contract.yaml").write_bytes(contract.read_bytes())
    return folder


def harness(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_the_guide_has_nine_examples() -> None:
    assert len(EXAMPLES) == 9


def test_every_example_of_the_guide_is_valid(examples: Path) -> None:
    done = harness("validate", str(examples))
    assert (done.returncode, done.stdout) == (0, "")


def test_every_example_of_the_guide_is_as_expected(examples: Path, tmp_path: Path) -> None:
    done = harness("run", str(examples), "--reports", str(tmp_path / "reports"), "-j2")
    assert done.returncode == 0, done.stderr


def test_the_committed_schema_is_the_one_that_the_models_give() -> None:
    committed = (ROOT / "scenarios" / "schema.json").read_text(encoding="utf-8")
    assert harness("schema").stdout == committed
