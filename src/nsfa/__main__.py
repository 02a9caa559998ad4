"""``python -m nsfa`` is the ``nsfa`` command."""

from nsfa.cli import app

app(prog_name="nsfa")
