"""Normalization operators and hyper-connections of com.microsoft."""
