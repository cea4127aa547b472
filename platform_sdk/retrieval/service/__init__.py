"""The retriever as an HTTP service, and the client that stands in for a retriever in a run.

``wire`` is what is said over the wire; ``app`` the routes, ``refusals`` all answers that are no success, ``metrics``
what Prometheus is told; ``hosting`` has the collections, each a ``collection``, ``batching`` joins concurrent requests,
``tokens`` knows the teams, ``server`` is the process; and ``remote`` is the client.
"""
