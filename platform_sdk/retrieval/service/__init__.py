"""The retriever as an HTTP service, and the client that stands in for a retriever in a run.

``wire`` is what is said over the wire, ``batching`` joins concurrent requests, ``tokens`` knows the teams, ``app`` is
the service and ``remote`` its client.
"""
