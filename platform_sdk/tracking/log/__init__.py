"""The project's log: an append-only hash chain of ends of runs and of approvals. docs/log.md has the format."""
