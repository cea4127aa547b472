"""Gateway between programs that use the OpenAI protocol and the sampling engine; records exact tokens."""
