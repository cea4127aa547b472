"""Runs killed anywhere, which must all end as one that was not.

::

    python -m tests.chaos                            # 50 SIGKILLs of a reduced MyGO run and of a reduced ARENA run
    python -m tests.chaos --recipe arena --seed 7 --kills 20 --workdir /tmp/chaos --json > report.json

For each recipe (``reduced.py``) one run is made undisturbed. Its events, as its processes tell them (``trace.py``: each
file that is opened for writing, renamed, removed; every process that starts), are the time line on which moments are
drawn from the seed (``plan.py``): just before an event of any name, uniformly in time, or while the command starts.
Then runs are attacked (``drive.py``): at a moment SIGKILL goes to the whole tree of processes, to the command alone, to
the step, to its guard or to the MLflow follower, and the same command is given again, at once or when everything is
gone, until it ends by itself. Between the kills there are SIGTERM and SIGINT, which must end the command cleanly (exit
130), SIGSTOP and SIGCONT, and second starts on the same directory, which must be refused.

At the end of each run everything that it left is compared with the undisturbed run (``outcome.py``): every file of the
run directory (rollouts, thresholds, selected sets, weights, scores; seconds left out), the manifest's events and
digests, and in MLflow the runs and their states, points of metrics, model versions, traces, artifacts. No process may
live on, no lock be held, no temporary file remain but those named in ``outcome.ALLOWED``, and ``hopforge verify`` finds
the run whole.

The report (``report.py``) has for each attack: run, number, signal, whom it hit, at which second, in which step, at
what moment, the newest events, the newest line of the step's log, and how the command ended. A difference names file,
record and field; the run's directory is then kept under ``--workdir``, and the same ``--seed``, ``--kills`` and
``--per-run`` draw the same attacks again on the same time line. The exit status is 1 if anything went wrong.

Processes are forked from one that has imported everything (``warm.py``), which makes a run five times faster and leaves
nothing out but the starting of Python and its imports; ``--cold`` starts them as a user does.
"""

import os

# Before numpy is imported: its threads would not be in what is forked.
os.environ.setdefault("OMP_NUM_THREADS", "1")
