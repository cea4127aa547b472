"""Jobs that a step makes on a cluster, and waits for.

``description`` says what a job is, whatever makes it; ``pytorchjob``, ``trainjob`` and ``indexedjob`` render it,
``backend`` chooses between them; ``kueue`` reads which kinds Kueue manages; ``state`` reads how a job goes; ``api``
speaks to the cluster; ``launcher`` creates or adopts a job and follows it to its end; ``diagnosis`` finds out why one
failed; ``reaper`` ends those that no launcher follows.
"""
