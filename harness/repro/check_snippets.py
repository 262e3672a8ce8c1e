"""Support functions of a script that hold a rule against what was seen."""

from __future__ import annotations

CHECK = '''\
answers = []


def check(rule, holds, expected, observed):
    """Say whether a rule held: True, False, or None where what was seen does not decide it."""
    answers.append(holds)
    word = {True: "as expected", False: "DEVIATION", None: "undecided"}[holds]
    print(f"{rule}: {word}\\n    expected: {expected}\\n    observed: {observed}", flush=True)
'''

#: In a script that tries many times: only what did not hold is said, in one line.
CHECK_OFTEN = '''\
answers = []


def check(rule, holds, expected, observed):
    """Note whether a rule held: True, False, or None where what was seen does not decide it."""
    answers.append(holds)
    if not holds:
        word = "DEVIATION" if holds is False else "undecided"
        print(f"  {rule}: {word}; expected: {expected}; observed: {observed}", flush=True)
'''

CHECK_EXIT = '''\
def check_exit(rule, name, wanted, how):
    """How a process ended; where nobody could learn its status, nothing is said."""
    check(rule, None if how == "it ended" else how == wanted, f"{name}: {wanted}", how)
'''

SAID = '''\
def said(name, word):
    """What the command said after this word, once or often; None if it did not."""
    word += " "
    found = [line[len(word) :] for line in lines(name) if line.startswith(word)]
    return found or None
'''

SAID_NUMBER = '''\
def said_number(name, word, base=10, index=-1):
    """A number in the line that the command began with this word; None if there is none."""
    found = said(name, word)
    return int(found[0].split()[index], base) if found else None
'''

ENVIRONMENT_SAID = '''\
def environment_said(name):
    """The environment that the command said it has; None if it did not."""
    _, begun, rest = text[name].partition("environment-begin\\n")
    entries, ended, _ = rest.rpartition("environment-end\\n")
    # Line breaks and NULs were exchanged, so that each entry is a line.
    pairs = (each.replace("\\0", "\\n").partition("=") for each in entries.split("\\n")[:-1])
    return {key: value for key, _, value in pairs} if begun and ended else None
'''

BEFORE = '''\
def before(a, b):
    """Whether a came before b: True, False, or None where both were seen in one wake-up.

    What came from one channel is in the order in which it was written.
    """
    channel = ("line", "object", "eof")
    if a.name == b.name and a.kind in channel and b.kind in channel:
        return events.index(a) < events.index(b)
    if a.wake_up + a.late < b.wake_up:
        return True
    return False if b.wake_up + b.late < a.wake_up else None
'''

CHECK_ORDER = '''\
def check_order(rule, moments):
    """Whether all of them happened, each before the next; moments: what is meant, and the event."""
    expected = ", then ".join(what for what, _ in moments)
    missing = [what for what, event in moments if event is None]
    if missing:
        check(rule, False, expected, "this did not happen: " + ", ".join(missing))
        return
    order = sorted(moments, key=lambda pair: events.index(pair[1]))
    seen = ", then ".join(f"{what} in wake-up {event.wake_up}" for what, event in order)
    pairs = [before(a, b) for (_, a), (_, b) in itertools.combinations(moments, 2)]
    check(rule, False if False in pairs else None if None in pairs else True, expected, seen)
'''

CHECK_GAP = '''\
def check_gap(rule, expected, start, end, at_least=None, at_most=None):
    """Whether the time between two events lies within bounds, as seen from here."""
    if start is None or end is None:
        check(rule, False, expected, "one of the two did not happen")
        return
    gap = end.at - start.at
    holds = (at_least is None or gap >= at_least) and (at_most is None or abs(gap) <= at_most)
    check(rule, holds, expected, f"{gap * 1000:.1f} ms")
'''

CHECK_SAME = '''\
def check_same(rule, expected, one, other, is_same=True):
    """Whether two values are the same, or not; nothing is said where one could not be read."""
    holds = None if None in (one, other) else (one == other) == is_same
    check(rule, holds, expected, f"{one} and {other}")
'''

OBJECTS = '''\
def objects(name):
    """The JSON objects that came from a channel so far; one may come in pieces, and span lines."""
    found, rest = [], text[name].lstrip()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            break  # not whole yet
        rest = rest[end:].lstrip()
        if isinstance(value, dict):
            found.append(value)
    return found
'''

MEMBER = '''\
def member(name, key):
    """That member of the first object that has it; None when none has."""
    return next((value[key] for value in objects(name) if key in value), None)
'''

LINES = '''\
def lines(name):
    """The lines that came from a channel, and what came after the last of them."""
    found = [line.rstrip("\\r") for line in text[name].split("\\n")]
    return found if found[-1] else found[:-1]
'''

#: In the order in which they stand in a script.
CHECKING = (
    CHECK, OBJECTS, MEMBER, LINES, SAID, SAID_NUMBER, ENVIRONMENT_SAID, BEFORE, CHECK_EXIT,
    CHECK_ORDER, CHECK_GAP, CHECK_SAME,
)  # fmt: skip
