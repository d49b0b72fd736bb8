"""ONNX files: bytes (`source`), protobuf (`wire`, `fields`, `schema`), records, and their import as a graph."""
