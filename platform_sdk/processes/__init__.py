"""Processes of one step: start them, end them together, divide work and GPUs among them."""
