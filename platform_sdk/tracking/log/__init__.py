"""The project's log: an append-only hash chain of ends of runs, approvals and removals. docs/log.md has the format."""
