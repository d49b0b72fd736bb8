"""From the records of a model file to a graph."""
