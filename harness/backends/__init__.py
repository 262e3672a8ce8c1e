"""Where a sandbox runs: a backend starts agents and talks to them.  Nothing is judged here."""
