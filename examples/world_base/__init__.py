"""Making of the base models that hopforge ships: their language, their documents and their training runs.

A small language model cannot learn to read from nothing in the minutes that a demonstration has, so the
project ships one that has seen the *language* of generated worlds: copying, looking facts up, and the dialogues of
an agent that errs often; and its successors for ARENA, ProGraph-R1, ReAct and Search-R1, which err too. Their worlds
share no (subject, relation) pair with those that recipes generate (see ``WorldSpec.split``).
``python -m examples.world_base --help`` says how to make them again.
"""
