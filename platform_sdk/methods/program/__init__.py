"""Program: any agent that uses the OpenAI API, without changes, trained by every trainer on its answers."""
