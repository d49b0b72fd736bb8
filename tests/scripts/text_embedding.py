# mypy: allow-untyped-defs, allow-untyped-calls
"""Embed sentences with a small transformer and compare them by cosine."""

import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("models/embedder.onnx", providers=ort.get_available_providers())
words = ["<pad>", "a", "the", "cat", "dog", "sat", "ran", "on", "mat", "road", "in", "sun"]
vocabulary = {word: i for i, word in enumerate(words)}


def tokenize(sentences):
    ids = [[vocabulary[word] for word in sentence.split()] for sentence in sentences]
    length = max(map(len, ids))
    input_ids = np.array([row + [0] * (length - len(row)) for row in ids], dtype=np.int64)
    return {"input_ids": input_ids, "attention_mask": (input_ids != 0).astype(np.int64)}


def embed(sentences):
    feeds = tokenize(sentences)
    hidden = session.run(["last_hidden_state"], {i.name: feeds[i.name] for i in session.get_inputs()})[0]
    mask = feeds["attention_mask"][..., np.newaxis].astype(np.float32)
    pooled = (hidden * mask).sum(axis=1) / mask.sum(axis=1)
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


embeddings = embed(["the cat sat on the mat", "a dog ran", "the dog ran in the sun on a road"])
similarity = embeddings @ embeddings.T
single = embed(["a dog ran"])
print(np.round(similarity, 3))
results = {
    "embeddings": embeddings,
    "similarity": similarity,
    "padding": np.abs(single[0] - embeddings[1]).max() < 1e-4,
}
