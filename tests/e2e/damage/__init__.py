"""Damage to a run's files, and what becomes of the run: ``python -m tests.e2e.damage``.

::

    python -m tests.e2e.damage                       # the whole table, both recipes: a thousand rows, half an hour
    python -m tests.e2e.damage --recipe arena --only 'finished .*scores'
    python -m tests.e2e.damage --sample 7            # each kind of file once, damage and moment drawn from the seed
    python -m tests.e2e.damage --short               # a dozen rows, and places where nothing can be written

A row is a moment (the run has finished, or was killed midway), a file, a damage, and what the same command does then.
There are two good outcomes: *equal* (it ends, with equal results) and *error* (exit status 2 and one error that names
the file). Anything else is a fault: other results, a traceback, a second error, a hang.

Files that a finished step has sealed are compared before anything else, whatever the moment; of them a run that
was killed midway is shown one damage each. The processes are forked from one that has imported everything, as those of
``tests.chaos``.
"""

import os

# Before numpy is imported: its threads would not be in what is forked.
os.environ.setdefault("OMP_NUM_THREADS", "1")
