"""Text as it comes, with the logits of each step."""

import numpy as np
import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
params = og.GeneratorParams(model)
params.set_search_options(max_length=40)
generator = og.Generator(model, params)
generator.append_tokens(tokenizer.encode("once upon a time"))

pieces, best = [], []
while not generator.is_done():
    logits = generator.get_logits()
    best.append(int(np.argmax(logits[0, -1])))
    generator.generate_next_token()
    token = generator.get_next_tokens()[0]
    pieces.append(stream.decode(token))

results = {"pieces": pieces, "best": best, "shape": list(logits.shape), "type": str(logits.dtype)}
