"""Operators of training: losses, optimizers, gradients."""
