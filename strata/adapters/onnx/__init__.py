"""ONNX models as programs."""
