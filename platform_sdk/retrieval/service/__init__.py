"""The retriever as an HTTP service; ``retrieval.remote`` is its client, ``retrieval.wire`` their shared schema.

``app`` has the routes, ``refusals`` all error responses, ``metrics`` the Prometheus metrics; ``hosting`` opens the
collections, ``collection`` is one of them, ``batching`` joins concurrent requests, ``tokens`` maps tokens to teams, and
``server`` runs the process.
"""
