"""Encoders, Milvus collections and retrievers.

``encoders`` encode texts as unit vectors (``load`` loads the recipe's encoder), ``milvus`` stores them, ``method``
defines retrieval methods (``methods`` has the shipped ones), ``index`` builds a method's collections once, and
``retriever`` answers an agent's requests in batches.

The results of a query do not depend on its batch: a resumed run batches queries differently from an uninterrupted run
and must get the same results.
"""
