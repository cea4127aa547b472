"""Encoders, Milvus collections and the retrievers an agent searches with.

``encoders`` make texts into unit vectors (``load`` makes the one a recipe names), ``milvus`` keeps them, ``method``
says what a retrieval method is (``methods`` are the shipped ones), ``index`` builds a method's collections once, and
``search`` answers an agent's requests from them, many in one call.

What is retrieved is a function of the question alone, not of the questions that happen to be asked
together: a resumed run batches them otherwise than an undisturbed one, and must find the same.
"""
