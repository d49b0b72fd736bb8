"""Text kept to regular expressions, whatever the model would rather say."""

import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
prompt = tokenizer.encode("the cat ")
results = {}

for name, pattern in {
    "regex": "[a-d]{3} (the|at)[0-9]{2}",
    "one_of": "(yes|no|maybe)",
    "words": "([a-c]|the) [x-z]{1,3}[.]",
}.items():
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60)
    params.set_guidance("regex", pattern)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    results[name] = [int(t) for t in generator.get_sequence(0)]

results["texts"] = {name: tokenizer.decode(ids[len(prompt) :]) for name, ids in results.items()}
