"""One package per method, and the interface and steps that methods share."""
