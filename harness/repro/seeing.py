"""The loop of a script: reading what comes, waiting, and, where order matters, writing it down.

Most scripts only have to read what comes and to wait.  Where a check is about an order or a time,
each thing that is seen becomes an event with the number of its wake-up: what is found in one
wake-up has no known order.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seeing:
    """What a script has to see.

    ``channels``: something is read; ``moments``: an order or time is checked; ``exits`` and
    ``markers``: an end of a process, or a file, is such a moment; ``objects``: a JSON object is;
    ``terminal``: one is read; ``first_line``: some channel is left after its first line.
    """

    channels: bool = True
    moments: bool = False
    exits: bool = False
    markers: bool = False
    objects: bool = False
    terminal: bool = False
    first_line: bool = False

    def library(self) -> list[str]:
        """The support functions, each a text that defines it."""
        waiting = [_WAIT_UNTIL, _NEED]
        if not self.looks:
            return [
                _WAIT_UNTIL.replace("        look(0.001)\n", "        time.sleep(0.001)\n"),
                _NEED,
            ]
        return [*self._state(), self._read(), self._look(), _WATCH_CHANNEL, *waiting]

    @property
    def looks(self) -> bool:
        """Whether there is anything to be read at all."""
        return self.channels or self.moments

    def _state(self) -> list[str]:
        text = _STATE
        if self.first_line:
            text += "first_line_only = set()  # channels that are left after a line\n"
        if self.moments:
            text += _EVENT_STATE
            text += "exits = {}  # pidfd -> whose it is\n" if self.exits else ""
        return [text, *_EVENTS, _WATCH_EXIT, _WATCH_MARKERS]

    def _look(self) -> str:
        doc = (
            "Wait for one wake-up, at most so long, and read once what is ready then.\n\n"
            "    What is found in one wake-up happened in an order that nobody knows.\n    "
            if self.moments
            else "Read once what has come from the sandbox, waiting for it at most so long."
        )
        lines = [f'def look(seconds=0.0):\n    """{doc}"""']
        sources = "*reading.values()" + (", *exits" if self.exits else "")
        if self.moments:
            lines.append("    global wake_up")
        listed = f"[{sources}]" if self.exits else "list(reading.values())"
        lines.append(f"    ready, _, _ = select.select({listed}, [], [], seconds)")
        if self.moments:
            lines.append("    wake_up += bool(ready)")
        lines += [
            "    for name, fd in list(reading.items()):",
            "        if fd in ready:",
            "            read(name, fd)",
        ]
        if self.exits:
            lines += [
                "    for fd in set(exits) & set(ready):",
                "        os.close(fd)",
                '        note("exit", exits.pop(fd))',
            ]
        return "\n".join(lines) + "\n"

    def _read(self) -> str:
        lines = ["def read(name, fd):"]
        if self.markers:
            lines += ['    if name == "files":', "        read_markers(fd)", "        return"]
        if self.terminal:
            lines += [
                "    try:",
                "        data = os.read(fd, 65536)",
                "    except OSError:  # EIO: what a terminal answers when its last user is gone",
                '        data = b""',
            ]
        else:
            lines.append("    data = os.read(fd, 65536)")
        lines.append('    more = data.decode("utf-8", "backslashreplace")')
        if self.moments:
            lines.append('    begun, late = text[name].rpartition("\\n")[2], False')
        if self.objects:
            lines.append("    before = len(objects(name))")
        lines.append("    text[name] += more")
        if self.moments:
            lines += [
                '    for line in (begun + more).split("\\n")[:-1]:',
                '        note("line", name, line.rstrip("\\r"), late)',
                "        late = True  # after something else in the same read",
            ]
        if self.objects:
            lines += [
                "    for number, value in enumerate(objects(name)[before:]):",
                '        note("object", name, value, number > 0)',
            ]
        lines += ["    if not data:", "        at_end.add(name)"]
        if self.moments:
            lines.append('        note("eof", name)')
        condition = "    if not data"
        if self.first_line:
            condition += ' or (name in first_line_only and "\\n" in text[name])'
            lines += [condition + ":", "        os.close(reading.pop(name))"]
        else:
            lines.append("        os.close(reading.pop(name))")
        return "\n".join(lines) + "\n"

    def forget(self) -> str:
        """The statements that start afresh for another try."""
        names = ["reading", "text", "at_end"] if self.looks else []
        names += ["events"] if self.moments else []
        names += ["exits"] if self.exits else []
        names += ["first_line_only"] if self.first_line else []
        return "".join(f"    {name}.clear()\n" for name in names)


_STATE = """\
reading = {}  # channel -> the fd that it is read from
text = {}  # channel -> all that came from it so far
at_end = set()  # channels whose end of file was seen
"""

_EVENT_STATE = """\
Event = collections.namedtuple("Event", "wake_up at kind name value late")
events = []  # everything that was seen, in the order in which it was seen
wake_up = 0
"""

_EVENTS = (
    """\
def note(kind, name, value="", late=False):
    events.append(Event(wake_up, time.monotonic(), kind, name, value, late))
""",
    '''\
def first(kind, name, part=""):
    """The first event of this kind that has this part (a member, a piece of a line), or None."""
    for event in events:
        if (event.kind, event.name) == (kind, name) and (not part or part in event.value):
            return event
    return None
''',
    '''\
def did(what):
    """Write down that we have done something just now: a wake-up of its own."""
    global wake_up
    wake_up += 1
    note("did", what)
''',
)

_WATCH_EXIT = '''

def watch_exit(name, pid):
    """Have the end of a process noted when it comes."""
    exits[os.pidfd_open(pid)] = name
'''

_WATCH_MARKERS = '''

def watch_markers(folder):
    """Have new files in a folder noted; inotify(7), so that their moment is as true as others."""
    reading["files"] = libc.inotify_init1(os.O_CLOEXEC)
    libc.inotify_add_watch(reading["files"], folder.encode(), 0x180)  # IN_CREATE | IN_MOVED_TO


def read_markers(fd):
    data, late = os.read(fd, 65536), False
    while data:
        end = 16 + struct.unpack("iIII", data[:16])[3]
        note("marker", data[16:end].rstrip(b"\\0").decode(), late=late)
        data, late = data[end:], True
'''

_WATCH_CHANNEL = '''\
def watch_channel(name, fd):
    """Read what comes from this fd from now on, until its end of file."""
    reading[name], text[name] = fd, ""
'''

_WAIT_UNTIL = '''\
def wait_until(condition, seconds):
    """Wait until the condition holds, at most so long; give what it was in the end."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found or time.monotonic() > deadline:
            return found
        look(0.001)
'''

_NEED = '''\
def need(condition, seconds, what):
    """Wait for something without which the rest would show nothing."""
    found = wait_until(condition, seconds)
    if not found:
        raise Inconclusive(f"this did not come about within {seconds} s: {what}")
    return found
'''
