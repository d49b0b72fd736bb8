"""Bytes of model files: protobuf, FlatBuffers, tensor data, external files."""
