"""Program: any agent that speaks the OpenAI protocol, unchanged, trained by every trainer on its answers."""
