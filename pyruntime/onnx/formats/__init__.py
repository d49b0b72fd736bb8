"""Model files as bytes: protobuf, FlatBuffers, tensor data, external files."""
