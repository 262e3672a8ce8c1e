"""Everything that runs where the sandbox is: standard library only, Python 3.9 or later."""
