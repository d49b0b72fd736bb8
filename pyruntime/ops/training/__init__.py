"""Training operators: losses, optimizers, gradients."""
