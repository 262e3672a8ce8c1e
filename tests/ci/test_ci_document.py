"""docs/ci.md: what it says of the action is true, and what it has people copy really runs."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ci_place import (
    CHECKOUT,
    SUDO,
    Workspace,
    action,
    copy_checkout,
    no_package_index,
    with_closed_tun,
)
from necessities import missing
from ruamel.yaml import YAML

from harness.errors import ExitCode

TEXT = (CHECKOUT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(?:#|//) ([^\n]*)\n(.*?)^```", TEXT, re.M | re.S)
#: One scenario instead of all of them.
SELECTION = "exit-status.codes-pass-through"
REMOTE = "https://github.com/OWNER/harness"


def block(language: str, title: str) -> str:
    """The one block with that first line, which says where it goes."""
    (found,) = (text for kind, name, text in BLOCKS if (kind, name) == (language, title))
    return str(found)


def yaml(title: str) -> Any:
    return YAML(typ="safe").load(block("yaml", title))


def job_of(title: str) -> Any:
    """The one job of a workflow of GitHub's."""
    (job,) = yaml(title)["jobs"].values()
    return job


WITH_ACTION = ".github/workflows/bwrap.yml, with the action"
PLAIN = ".github/workflows/bwrap.yml, in plain steps"
GITLAB = ".gitlab-ci.yml"


def test_the_snippets_of_the_readme_are_those_that_are_tried_here() -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```(\w+)\n(?:#|//) ([^\n]*)\n(.*?)^```", readme, re.M | re.S)
    assert [title for _, title, _ in shown] == [WITH_ACTION, GITLAB, "Jenkinsfile"]
    assert [each for each in shown if each not in BLOCKS] == []


# --- the shell text of each snippet --------------------------------------------------------------


def plain_scripts() -> list[str]:
    return [step["run"] for step in job_of(PLAIN)["steps"] if "run" in step]


def gitlab_scripts() -> list[str]:
    (job,) = yaml(GITLAB).values()
    return list(job["script"])


def jenkins_scripts() -> list[str]:
    """What the ``sh`` steps run, in order."""
    found = re.findall(r"\bsh (?:'''(.*?)'''|'([^'\n]*)')", block("groovy", "Jenkinsfile"), re.S)
    return [textwrap.dedent(several).strip() + "\n" if several else one for several, one in found]


SNIPPETS = {"GitHub": plain_scripts, "GitLab": gitlab_scripts, "Jenkins": jenkins_scripts}


def lines(name: str) -> list[str]:
    return [line for script in SNIPPETS[name]() for line in script.splitlines()]


@dataclass
class Installed:
    """A folder in which the lines that install harness were run, and a remote to clone from."""

    place: Workspace
    git: dict[str, str]


def installing(name: str) -> list[str]:
    return [line for line in lines(name) if re.search("clone|install|-m venv", line)]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """The lines of one snippet that install; those of the others are the same."""
    place = Workspace()
    remote = copy_checkout(place.base / "remote")
    for command in ("init --quiet", "add --all", "commit --quiet --message v1", "tag v1"):
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", *who, *command.split()], cwd=remote, check=True)
    # The snippet's own address, from which nothing can be cloned while its owner is a placeholder.
    git = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": REMOTE,
    }
    # The dependencies are installed by the tests of the action; these are the tests' own.
    done = place.step("\n".join(installing("GitHub")), {**git, "PIP_NO_DEPS": "1"})
    if done.code and no_package_index(place):
        missing("no package index can be reached")
    assert done.code == 0, done.log
    (packages,) = (place.path / ".venv-harness").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield Installed(place, git)
    place.remove()


# --- what is said ---------------------------------------------------------------------------------


def rows(head: str) -> list[list[str]]:
    """The cells of a table, by its first row."""
    (table,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.M)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def test_the_page_tells_every_input_and_output_of_the_action_in_order() -> None:
    described = action()
    told = {row[0].strip("` "): row[1].strip("` ") for row in rows("input | default |")}
    assert list(told) == list(described["inputs"])
    defaults = {name: each["default"] for name, each in described["inputs"].items()}
    assert {name: told[name] for name, text in defaults.items() if text} == {
        name: text for name, text in defaults.items() if text
    }
    outputs = [row[0].strip("` ") for row in rows("output |")]
    assert outputs == list(described["outputs"])


def test_the_page_tells_every_exit_code() -> None:
    told = [int(code) for row in rows("code | what happened") for code in row[0].split(",")]
    assert told == sorted(code.value for code in ExitCode)


def test_the_links_of_the_page_lead_somewhere() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, re.M)
    anchors = {"#" + heading.lower().replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert target in anchors or (CHECKOUT / "docs" / target).is_file(), target


def test_every_block_of_the_page_is_one_that_is_tested() -> None:
    assert TEXT.count("\n```") == 2 * len(BLOCKS)
    assert sorted((kind, name) for kind, name, _ in BLOCKS) == [
        ("groovy", "Jenkinsfile"),
        ("toml", "/etc/gitlab-runner/config.toml"),
        ("yaml", PLAIN),
        ("yaml", WITH_ACTION),
        ("yaml", GITLAB),
    ]


# --- what is published ----------------------------------------------------------------------------


def test_each_snippet_publishes_its_reports_also_when_the_gate_fails() -> None:
    (gitlab,) = yaml(GITLAB).values()
    assert gitlab["artifacts"]["when"] == "always"
    assert gitlab["artifacts"]["reports"] == {"junit": "junit.xml"}
    assert gitlab["artifacts"]["paths"] == ["report.html"]
    for title, path in ((PLAIN, "junit.xml\nreport.html\n"), (WITH_ACTION, None)):
        upload = job_of(title)["steps"][-1]
        assert upload["if"].startswith("always()")
        assert path is None or upload["with"]["path"] == path
    jenkins = block("groovy", "Jenkinsfile")
    (post,) = re.findall(r"post \{\s*always \{(.*?)\}", jenkins, re.S)
    assert "junit testResults: 'junit.xml'" in post
    assert "archiveArtifacts artifacts: 'report.html'" in post


def test_each_snippet_gates_and_lets_nothing_skip_in_green() -> None:
    (gitlab,) = yaml(GITLAB).values()
    assert gitlab["variables"] == job_of(PLAIN)["env"] == {"HARNESS_MUST_WORK": "1"}
    assert "environment { HARNESS_MUST_WORK = '1' }" in block("groovy", "Jenkinsfile")
    for _kind, _name, text in BLOCKS:
        assert re.search(r"\|\| true|allow_failure|continue-on-error|returnStatus", text) is None


def test_what_the_runner_of_gitlab_is_told_is_toml() -> None:
    told = tomllib.loads(block("toml", "/etc/gitlab-runner/config.toml"))
    (runner,) = told["runners"]
    assert runner["docker"] == {"privileged": True, "devices": ["/dev/net/tun"]}


def test_the_jenkinsfile_is_a_declarative_pipeline() -> None:
    """No Groovy here; brackets that match, and sections where the syntax wants them."""
    text = block("groovy", "Jenkinsfile")
    bare = re.sub(r"'''.*?'''|'[^'\n]*'", "''", text, flags=re.S)
    path: list[str] = []
    found: list[str] = []
    for name, bracket in re.findall(r"(\w+(?:\('[^']*'\))?)?\s*([{}()])", bare):
        if bracket in "{(":
            path.append(name.partition("(")[0] + bracket)
            found.append("/".join(each.strip("{") for each in path if each.endswith("{")))
        else:
            assert path.pop()[-1] == {"}": "{", ")": "("}[bracket]
    assert path == []
    sections = list(dict.fromkeys(found))
    assert sections == [
        "pipeline",
        "pipeline/agent",
        "pipeline/options",
        "pipeline/environment",
        "pipeline/stages",
        "pipeline/stages/stage",
        "pipeline/stages/stage/steps",
        "pipeline/post",
        "pipeline/post/always",
    ]


# --- what is run ----------------------------------------------------------------------------------


def test_the_snippets_install_in_the_same_way() -> None:
    assert installing("GitLab") == installing("GitHub")
    assert installing("Jenkins") == installing("GitHub")


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_shell_lines_of_a_snippet_run_and_write_its_reports(
    place: Workspace, installed: Installed, name: str
) -> None:
    place.program("sudo", SUDO.format(log=place.base / "sudo.log"))
    rest = [line for line in lines(name) if line not in installing("GitHub")]
    if rest[0].startswith("rm "):  # what an earlier build left
        place.write("junit.xml", "<testsuites/>")
        place.step(rest.pop(0))
        assert os.listdir(place.path) == ["own scenarios"]
    for folder in ("harness", ".venv-harness"):
        (place.path / folder).symlink_to(installed.place.path / folder)
    script = "\n".join(rest).replace("bin/harness run ", f"bin/harness run -k {SELECTION} ")
    assert script.count(SELECTION) == 1
    mode = place.base / "mode"
    prelude = with_closed_tun(mode) if os.geteuid() == 0 else []
    done = place.step(script, {"HARNESS_MUST_WORK": "1", **installed.git}, prelude)
    assert done.code == 0, done.log
    (case,) = ElementTree.parse(place.path / "junit.xml").iter("testcase")
    assert case.get("name") == SELECTION
    assert (place.path / "report.html").is_file()
    assert "1 passed" in done.log
    if prelude:
        # An engine makes the device for root alone; a machine's own is not a job's to open.
        assert mode.read_text() == ("666\n" if name == "GitLab" else "600\n")


def test_the_workflow_with_the_action_runs(place: Workspace) -> None:
    place.program("sudo", SUDO.format(log=place.base / "sudo.log"))
    (used,) = (step for step in job_of(WITH_ACTION)["steps"] if step.get("id") == "harness")
    assert used["uses"] == "OWNER/harness@v1"
    # As the runner hands them over: every value as text.
    inputs = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in used["with"].items()
    }
    inputs["args"] += f"-k\n{SELECTION}\n"
    done = place.act({**inputs, "paths": ""})
    assert done.code == 0, done.log
    (case,) = ElementTree.parse(done.outputs["junit"]).iter("testcase")
    assert case.get("name") == SELECTION
    (upload,) = (step for step in job_of(WITH_ACTION)["steps"] if "upload" in str(step.get("uses")))
    for name in re.findall(r"steps\.harness\.outputs\.([a-z-]+)", str(upload)):
        assert name in done.outputs
    assert Path(done.outputs["run"]).is_dir()
