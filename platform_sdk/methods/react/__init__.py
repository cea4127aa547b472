"""ReAct: one agent that thinks, uses tools and answers, trained online by GRPO on its answers alone."""
