"""Several prompts at once."""

import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
prompts = ["the first", "a second one, longer", "third?"]
tokens = tokenizer.encode_batch(prompts)

params = og.GeneratorParams(model)
params.set_search_options(max_length=40, batch_size=len(prompts))
generator = og.Generator(model, params)
generator.append_tokens(tokens)
while not generator.is_done():
    generator.generate_next_token()

results = {prompt: [int(t) for t in generator.get_sequence(i)] for i, prompt in enumerate(prompts)}
results["texts"] = [tokenizer.decode(generator.get_sequence(i)) for i in range(len(prompts))]
