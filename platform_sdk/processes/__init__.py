"""Processes of one step: start them, end them together, divide work and GPUs among them.

``launch`` starts several as ``torchrun`` does, and ``entry`` is what each begins with; ``shares`` divides the work,
``environment`` tells a process its place and its GPUs; ``guard`` ends a command with the process that started it.
"""
