"""Parts of agents that several methods share: dialogues with the policy, tagged sections, planner and workers."""
