"""Service of the project's log, ``hopforge serve log``. docs/log.md has its protocol."""
