"""Program: any agent that speaks the OpenAI protocol, unchanged, trained online by GRPO on its answers."""
