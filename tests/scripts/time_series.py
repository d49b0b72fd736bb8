"""Forecast a series step by step with an LSTM whose state goes around."""

import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("models/forecaster.onnx", providers=ort.get_available_providers())
shapes = {i.name: i.shape for i in session.get_inputs()}
hidden = shapes["h0"][2]

series = np.sin(np.arange(40, dtype=np.float32) / 3)
state = {name: np.zeros((1, 1, hidden), np.float32) for name in ("h0", "c0")}

prediction, state["h0"], state["c0"] = session.run(None, {"x": series[:, np.newaxis, np.newaxis], **state})
warm = prediction[-1, 0, 0]
forecast = []
for _ in range(10):
    step = np.full((1, 1, 1), warm, np.float32)
    prediction, state["h0"], state["c0"] = session.run(["y", "h", "c"], {"x": step, **state})
    warm = prediction[-1, 0, 0]
    forecast.append(float(warm))

print("forecast:", np.round(forecast, 3))
try:
    session.run(None, {"x": series})
    message = ""
except ValueError as error:
    message = str(error)
results = {"forecast": np.array(forecast, np.float32), "state": state["h0"], "missing": "h0" in message}
