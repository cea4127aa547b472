"""EviPath: reasoning paths that are anchored in gold evidence, and a model fine-tuned on them.

Read in this order: ``records`` (a path), ``grammar`` and ``prompts`` (what is said), ``proxy`` and ``evidence`` (what
an executor reads, and what its answer rests on), ``checks`` (what is kept), ``rules`` with ``hops``, ``phrases`` and
``comparison`` (the teacher without a language model), ``teacher`` and ``search_teacher`` (those with one),
``synthesis`` (files, resumption, the table), ``dialogues``, ``learning`` and ``export`` (paths as chats and as
training rollouts), ``statistics``, ``method`` (all of it as a method), ``settings``.
"""
