"""If, Loop and Scan, and the subgraphs of operators."""
