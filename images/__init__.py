"""Which containers: how each image is built and the digest it is pinned to."""
