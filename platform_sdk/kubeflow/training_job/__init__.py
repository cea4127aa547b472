"""Jobs that a step creates on a cluster, and waits for.

``description`` describes a job independently of its kind, ``pod`` its pods' settings; ``pytorchjob``, ``trainjob`` and
``indexedjob`` render it, ``runtime`` renders what TrainJobs share, ``backend`` chooses the kind; ``kueue`` reads which
kinds Kueue manages. ``api`` calls the API server, ``watch`` lists and watches a job's objects, ``state`` reads the
job's state from them and ``restarts`` counts its failed pods. ``launcher`` creates or adopts a job and follows it to
its end; ``failure`` finds the cause of its failure by the rules of ``diagnosis``; ``reaper`` ends jobs without a
launcher.
"""
