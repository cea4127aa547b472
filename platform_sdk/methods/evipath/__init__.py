"""EviPath: reasoning paths anchored in gold evidence, and a model fine-tuned on them.

Suggested reading order: ``records`` (a path), ``grammar`` and ``prompts`` (messages), ``proxy`` and ``evidence`` (an
executor's input, and the evidence of its answer), ``checks`` (filters), ``rules`` with ``hops``, ``phrases`` and
``value_comparison`` (the teacher without a language model), ``teacher`` and ``search_teacher`` (teachers with one),
``synthesis`` (files, resumption, the table), ``dialogues``, ``learning`` and ``export`` (paths as chats and as training
rollouts), ``path_statistics``, ``method`` (the method), ``settings``.
"""
