"""What is there before any bwrap runs: files, the environment, helpers."""

from __future__ import annotations

from harness.model.scenario import Helper
from harness.repro.source import bytes_literal, identifier, literal
from harness.repro.story import Story

#: bwrap starts with this and nothing else, so that nothing depends on who runs the script.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
}


def port_name(helper: str) -> str:
    """The environment variable in which a command finds the port of a listener."""
    return helper.upper().replace("-", "_") + "_PORT"


def make_files(story: Story) -> None:
    """Statements that make the files of the scenario in its folder, which is the current one."""
    source = story.source
    for name, spec in story.scenario.files.items():
        if "/" in name:
            folder = literal(name.rpartition("/")[0])
            source.add(f"os.makedirs({folder}, exist_ok=True)")
        with source.block(f'with open({literal(name)}, "wb") as file:'):
            if spec.content:
                source.call("file.write(", [bytes_literal(spec.content)])
            else:
                source.add("pass")
        if spec.mode != "0644":
            source.add(f"os.chmod({literal(name)}, 0o{int(spec.mode, 8):o})")


def make_environment(story: Story) -> None:
    """The environment that every bwrap gets."""
    source = story.source
    items = [f"{literal(key)}: {literal(value)}" for key, value in BASE_ENVIRONMENT.items()]
    items.append('"SCRATCH": scratch')
    for name, helper in story.scenario.helpers.items():
        if helper.listen == "tcp":
            items.append(
                f"{literal(port_name(name))}: str({identifier(name)}_listener.getsockname()[1])"
            )
    source.call("environment = {", items, "}")


def start_helper(story: Story, name: str, helper: Helper) -> None:
    """A helper.  Who holds a lock, or keeps an fd, is the script itself; who listens is forked."""
    source, stem = story.source, identifier(name)
    if helper.lock is not None:
        access = "os.O_RDWR" if helper.lock == "write" else "os.O_RDONLY"
        source.add(f"{stem}_lock = os.open({literal(helper.file or '')}, {access})")
        kind = "EX" if helper.lock == "write" else "SH"
        if helper.api == "flock":
            source.add(f"fcntl.flock({stem}_lock, fcntl.LOCK_{kind} | fcntl.LOCK_NB)  # {name}")
        elif helper.api == "ofd":
            code = "fcntl.F_WRLCK" if helper.lock == "write" else "fcntl.F_RDLCK"
            source.add(f'flock = struct.pack("hhqqi4x", {code}, os.SEEK_SET, 0, 0, 0)')
            source.add(f"fcntl.fcntl({stem}_lock, 37, flock)  # {name}: F_OFD_SETLK")
        else:
            source.add(f"fcntl.lockf({stem}_lock, fcntl.LOCK_{kind} | fcntl.LOCK_NB)  # {name}")
    elif helper.listen is not None:
        if helper.listen == "tcp":
            source.add(f'{stem}_listener = socket.create_server(("127.0.0.1", 0))')
        else:
            source.add(
                f"{stem}_listener = socket.socket(socket.AF_UNIX)",
                f"{stem}_listener.bind({literal(helper.file or '')})",
                f"os.chmod({literal(helper.file or '')}, 0o666)",
                f"{stem}_listener.listen()",
            )
        source.add(f"{stem}_pid = fork(lambda: greet({stem}_listener), [{stem}_listener.fileno()])")
        story.resolved.add(f"{stem}_pid")
