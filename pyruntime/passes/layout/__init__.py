"""Passes that move, merge or remove changes of layout."""
