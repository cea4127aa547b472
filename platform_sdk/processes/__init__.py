"""Processes of one step: start, joint end, and division of work and GPUs.

``launch`` starts several as ``torchrun`` does, and ``entry`` is what each begins with; ``shares`` divides the work,
``environment`` sets a process's rank and its GPUs; ``guard`` ends a command with the process that started it.
"""
