"""The evaluation: the same questions, the same corpus, several ways to find what answers them."""
