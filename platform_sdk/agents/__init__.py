"""Parts of agents that several methods share: a policy that speaks, sections between tags, planner and workers."""
