"""Control flow: If, Loop and Scan, and the execution of their subgraphs."""
