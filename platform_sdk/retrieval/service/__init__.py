"""The retriever as an HTTP service; its client is ``retrieval.remote``, and what both say ``retrieval.wire``.

``app`` has the routes, ``refusals`` all error answers, ``metrics`` what Prometheus reads; ``hosting``
has the collections, each a ``collection``, ``batching`` joins concurrent requests, ``tokens`` knows the teams, and
``server`` is the process.
"""
