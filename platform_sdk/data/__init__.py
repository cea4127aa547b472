"""Official formats in, records out: loaders, corpora, triple stores, and the generated world."""
