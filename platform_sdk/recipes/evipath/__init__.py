"""EviPath: reasoning paths that are anchored in gold evidence, and a model fine-tuned on them.

Read in this order: ``records`` (an example), ``grammar`` and ``prompts`` (what is said), ``evidence`` (which evidence
a sub-answer rests on), ``checks`` (what is kept), ``rules`` with ``hops``, ``phrases`` and ``comparison`` (the teacher
without a language model), ``teacher`` (the teacher with one), ``synthesis`` (files, resumption, the table),
``dialogues`` (examples as chats and as training rollouts), ``method`` (all of it as a method), ``settings``.
"""
