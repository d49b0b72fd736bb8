"""Attention operators of com.microsoft."""
