"""The payload that reports what a sandbox looks like from within, and the parser of its report.

The payload is a text for ``sh -c``, because an image may hold nothing but a shell. It runs in
dash, bash and busybox sh; of other programs it uses ``readlink`` and ``tr`` where there are any,
and names those that it misses instead of failing. It writes nothing to stderr, leaves no file,
changes no fd, trap or working directory, and can be followed by more script text. It takes about
20 ms, nearly all of it for starting readlink.

How it looks without disturbing what it looks at:

* ``/proc/self`` is read by the shell's own builtins, never ``/proc/$$``: without ``--proc`` a
  sandbox with its own pid namespace sees the outer /proc, where ``$$`` is a stranger.
* A redirected loop runs in the shell itself (POSIX 2.9.4 does not make it a subshell), so
  ``/proc/self`` is the shell there.
* Status comes first, since dash unblocks every signal once it has run another program.
* Link targets of fds are read by a child with the shell's own stdout, since a command substitution
  would show its pipe in place of fd 1. A child has the shell's fds: whatever reached it
  through exec is not close-on-exec. The fd with which the shell lists the directory is among
  the numbers, but closed again by then, and left out.
* ``/proc/self/environ`` is opened by the shell, through the braces round ``tr``: so it is what
  the shell was started with, not what it would pass on, and it is not empty, as it is when the
  process that opened it has executed something else.

What it cannot know: all three shells catch SIGCHLD, so it is never among the ignored signals; bash
and busybox sh ignore SIGQUIT themselves, dash and busybox sh catch SIGINT; and a path with a line
break, as an fd's target or the working directory, is cut.
"""

from __future__ import annotations

from typing import Any

from harness.agent import procfs

BEGIN_MARK = "%%% harness observation 1 begin"
END_MARK = "%%% harness observation 1 end"

_ENVIRON_BEGIN = "environ-begin"
_ENVIRON_END = "environ-end"

# Inside, one line is "word rest". Environment entries stand bare between two marks, with NUL and
# line break exchanged: NUL is the one byte that no value contains.
_SCRIPT = r"""
_obs_dump() {
  if [ -r "$2" ]; then
    while IFS= read -r _obs_line; do
      printf '%s %s\n' "$1" "$_obs_line"
    done < "$2"
  else
    printf 'missing %s\n' "$2"
  fi
}
printf '\n%s\n' '@BEGIN@'
_obs_dump status /proc/self/status
_obs_dump stat /proc/self/stat
printf 'pid %s\nppid %s\n' "$$" "$PPID"
_obs_cwd=$(pwd -P) && printf 'cwd %s\n' "$_obs_cwd"
printf 'umask %s\n' "$(umask)"
_obs_readlink=$(command -v readlink) || printf 'missing readlink\n'
if [ -d /proc/self/fd ]; then
  for _obs_path in /proc/self/fd/*; do
    [ -h "$_obs_path" ] || continue
    printf 'fd %s ' "${_obs_path##*/}"
    if [ -n "$_obs_readlink" ]; then
      readlink "$_obs_path" || printf '\n'
    else
      printf '?\n'
    fi
  done
  if [ -n "$_obs_readlink" ]; then
    for _obs_path in /proc/self/ns/*; do
      printf 'ns %s ' "${_obs_path##*/}"
      readlink "$_obs_path" || printf '\n'
    done
  fi
else
  printf 'missing /proc\n'
fi
_obs_dump uid_map /proc/self/uid_map
_obs_dump gid_map /proc/self/gid_map
_obs_dump mount /proc/self/mountinfo
_obs_dump hostname /proc/sys/kernel/hostname
if [ -r /proc/self/environ ]; then
  if _obs_tr=$(command -v tr); then
    printf '%s\n' '@ENVIRON_BEGIN@'
    { tr '\000\n' '\n\000'; } < /proc/self/environ
    printf '%s\n' '@ENVIRON_END@'
  else
    printf 'missing tr\n'
  fi
else
  printf 'missing /proc/self/environ\n'
fi
printf '%s\n' '@END@'
"""

OBSERVE_SCRIPT = (
    _SCRIPT.strip()
    .replace("@BEGIN@", BEGIN_MARK)
    .replace("@END@", END_MARK)
    .replace("@ENVIRON_BEGIN@", _ENVIRON_BEGIN)
    .replace("@ENVIRON_END@", _ENVIRON_END)
)
"""Run as ``["sh", "-c", OBSERVE_SCRIPT]``; the report is on stdout, also when parts are missing."""

_Lines = dict[str, list[str]]


def parse_observation(text: str) -> dict[str, Any]:
    """Turn the payload's output into one JSON-able dictionary; text round the marks is ignored.

    ``text`` is its stdout decoded with ``surrogateescape``. Keys, with None (or an empty
    collection) for what was not to be seen, each reason being in ``missing``:

    * ``pid``, ``ppid``, ``pgrp``, ``session``: numbers in the command's own pid namespace, 0 for
      one that has no number there. ``nspid``: from the outermost that /proc shows, inwards.
    * ``proc_is_own``: whether /proc belongs to the command's own pid namespace.
    * ``tty_nr`` (0 for none) and ``tty``: the controlling terminal.
    * ``fds``: fd number to link target; ``"?"`` when there is no readlink.
    * ``signals``: ``blocked``, ``ignored``, ``caught``, sorted names.
    * ``capabilities``: ``inheritable``, ``permitted``, ``effective``, ``bounding``, ``ambient``,
      bit masks.
    * ``no_new_privs``, ``seccomp`` as in ``procfs.Status``.
    * ``namespaces``: kind to inode number.
    * ``uid``, ``gid``: effective, inside. ``uid_map``, ``gid_map``: rows of first inside, first
      outside, count.
    * ``environment``: name to value as at exec, None when it could not be read.
    * ``mounts``: in mount order: ``mount_point``, ``root``, ``fstype``, ``source``, ``options``,
      ``super_options``, ``propagation``, ``mount_id``, ``parent_id``.
    * ``cwd``, ``umask`` (integer), ``hostname``, ``missing``.

    ``ValueError`` when a mark is missing: the payload did not run, or was cut off.
    """
    lines, environment = _split(_between_marks(text))
    status = procfs.parse_status(_encode("\n".join(lines.get("status", []))))
    stat = procfs.parse_stat(_encode("\n".join(lines.get("stat", []))))
    pid = int(_single(lines, "pid") or 0)
    umask = _single(lines, "umask")
    found: dict[str, Any] = {
        "pid": pid,
        "ppid": int(_single(lines, "ppid") or 0),
        "pgrp": _innermost(lines, "NSpgid", None if stat is None else stat.pgrp),
        "session": _innermost(lines, "NSsid", None if stat is None else stat.session),
        "tty_nr": None if stat is None else stat.tty_nr,
        "tty": None if stat is None else stat.tty_nr != 0,
        "fds": _fds(lines),
        "namespaces": _namespaces(lines),
        "uid_map": [[int(word) for word in row.split()] for row in lines.get("uid_map", [])],
        "gid_map": [[int(word) for word in row.split()] for row in lines.get("gid_map", [])],
        "environment": environment,
        "mounts": [parse_mount(line) for line in lines.get("mount", [])],
        "cwd": _single(lines, "cwd"),
        "umask": None if umask is None else int(umask, 8),
        "hostname": _single(lines, "hostname"),
        "missing": lines.get("missing", []),
    }
    found.update(_credentials(status, pid))
    return found


def _between_marks(text: str) -> list[str]:
    # A terminal turns every line break into two characters.
    if BEGIN_MARK + "\r\n" in text:
        text = text.replace("\r\n", "\n")
    # Not splitlines(): it would also split at the form feeds and separators of a value.
    everything = text.split("\n")
    try:
        begin = everything.index(BEGIN_MARK)
    except ValueError:
        raise ValueError(
            f"no observation: expected a line {BEGIN_MARK!r} in {len(text)} characters of output; "
            "the payload did not start"
        ) from None
    try:
        end = everything.index(END_MARK, begin)
    except ValueError:
        raise ValueError(
            f"observation cut off after {everything[-2:]!r}: expected a line {END_MARK!r}"
        ) from None
    return everything[begin + 1 : end]


def _split(report: list[str]) -> tuple[_Lines, dict[str, str] | None]:
    environment: dict[str, str] | None = None
    if _ENVIRON_BEGIN in report and _ENVIRON_END in report:
        begin = report.index(_ENVIRON_BEGIN)
        # The last one: a value may contain anything, but nothing of ours follows the section.
        end = len(report) - 1 - report[::-1].index(_ENVIRON_END)
        environment = {}
        for entry in report[begin + 1 : end]:
            name, _, value = entry.replace("\0", "\n").partition("=")
            environment.setdefault(name, value)
        report = report[:begin]
    lines: _Lines = {}
    for line in report:
        word, _, rest = line.partition(" ")
        lines.setdefault(word, []).append(rest)
    return lines, environment


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _single(lines: _Lines, word: str) -> str | None:
    return lines[word][0] if lines.get(word) else None


def _innermost(lines: _Lines, field: str, fallback: int | None) -> int | None:
    """Take the id in the innermost namespace; those of stat are in the one that /proc shows."""
    for line in lines.get("status", []):
        name, _, value = line.partition(":")
        if name == field and value.split():
            return int(value.split()[-1])
    return fallback


def _fds(lines: _Lines) -> dict[int, str]:
    found: dict[int, str] = {}
    for line in lines.get("fd", []):
        number, _, target = line.partition(" ")
        if number.isdigit() and target:
            found[int(number)] = target
    return dict(sorted(found.items()))


def _namespaces(lines: _Lines) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines.get("ns", []):
        kind, _, target = line.partition(" ")
        _, bracket, inode = target.partition("[")
        if bracket:
            found[kind] = int(inode.rstrip("]"))
    return found


def _credentials(status: procfs.Status | None, pid: int) -> dict[str, Any]:
    if status is None:
        return {
            "nspid": [],
            "proc_is_own": None,
            "signals": None,
            "capabilities": None,
            "no_new_privs": None,
            "seccomp": None,
            "uid": None,
            "gid": None,
        }
    return {
        "nspid": list(status.nspid),
        "proc_is_own": status.pid == pid and len(status.nspid) <= 1,
        "signals": {
            "blocked": sorted(status.signals.blocked),
            "ignored": sorted(status.signals.ignored),
            "caught": sorted(status.signals.caught),
        },
        "capabilities": {
            "inheritable": status.cap_inheritable,
            "permitted": status.cap_permitted,
            "effective": status.cap_effective,
            "bounding": status.cap_bounding,
            "ambient": status.cap_ambient,
        },
        "no_new_privs": status.no_new_privs,
        "seccomp": status.seccomp,
        "uid": status.uids[1],
        "gid": status.gids[1],
    }


def _unescape(field: str) -> str:
    """Undo the octal escapes of mountinfo: space, tab, line break, backslash and ``#``."""
    if "\\" not in field:
        return field
    head, *rest = field.split("\\")
    return head + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in rest)


def parse_mount(line: str) -> dict[str, Any]:
    """Parse one line of mountinfo (proc_pid_mountinfo(5)); keys as in ``parse_observation``.

    Optional fields (propagation) end at a lone hyphen, and there can be none of them.
    """
    before, _, after = line.partition(" - ")
    words = before.split(" ")
    fstype, source, super_options = [*after.split(" ", 2), "", ""][:3]
    return {
        "mount_id": int(words[0]),
        "parent_id": int(words[1]),
        "root": _unescape(words[3]),
        "mount_point": _unescape(words[4]),
        "options": words[5].split(","),
        "propagation": words[6:],
        "fstype": fstype,
        "source": _unescape(source),
        "super_options": super_options.split(",") if super_options else [],
    }
