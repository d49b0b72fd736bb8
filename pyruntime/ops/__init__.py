"""ONNX operators. Each module holds one operator or family; `registry` looks operators up."""
