"""Judging: expectation x timeline -> findings.  Pure; nothing here touches the operating system.

``recording`` holds every expectation of a scenario against one recording, ``tally`` adds up the
repeats and applies known deviations, ``rates`` does the arithmetic of races; the other modules
hold one family of rules each.  A rule is a function from what the scenario says and the timeline
to a :class:`harness.judges.rules.Judgement`.
"""
